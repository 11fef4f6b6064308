// Lists, verifies, digests, compares and converts checkpoints. See --help.

#include <cstddef>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/nearest_name.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/reader.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/foreign_format.h"
#include "lockstep/checkpoint/file/path.h"
#include "lockstep/checkpoint/inspect/difference.h"
#include "lockstep/checkpoint/inspect/digest.h"
#include "lockstep/checkpoint/inspect/leaves.h"
#include "lockstep/checkpoint/inspect/listing.h"
#include "lockstep/checkpoint/inspect/programs.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"

DEFINE_bool(json, false, "Print JSON, with list.");
DEFINE_string(key, "",
              "Use only the part of the file (of both files in diff) under these keys, such as ema.state_dict.");

namespace lockstep::checkpoint::inspect {
namespace {

constexpr char kDescription[] =
    R"(Looks into checkpoints: PyTorch's .pt files, safetensors files (FILE.safetensors) and programs of torch.export (FILE.pt2).

  inspect list FILE [--json]  lists each tensor's name, dtype, shape, bytes and saved device, and the other values in short
  inspect verify FILE         reads everything, and checks the checksums of a .pt or .pt2 file; names the damaged record
  inspect digest FILE         prints the SHA-256 of each tensor's dtype, shape and elements, and last of these lines
  inspect diff A B            lists entries in one file only, other dtypes or shapes, and the number of different elements
  inspect convert IN OUT      writes OUT in the format of its name; for safetensors, dots join the keys of nested dicts

No GPU is needed: all tensors are loaded to the CPU, and convert writes CPU tensors. A safetensors file made from a .pt file
has the metadata {"format": "pt"}. A .pt file has no metadata, so those of a safetensors file are lost.

Each program of a .pt2 file, often "model", has its state_dict, constants, inputs, outputs, sizes and numbers of operators.
So convert NET.pt2 OUT --key=model.state_dict writes its weights. convert makes no .pt2 file.

The exit code is 0 for success; 1 if a file is damaged or cannot be converted, or if two files differ; and 2 for an error in
the command line, and if diff cannot read its files.)";

struct Command {
  const char* name;
  size_t files;
  const char* arguments;
};

constexpr Command kCommands[] = {
    {"list", 1, "FILE"}, {"verify", 1, "FILE"}, {"digest", 1, "FILE"}, {"diff", 2, "A B"}, {"convert", 2, "IN OUT"}};

bool IsSafetensors(const std::string& path) { return absl::EndsWith(path, ".safetensors"); }
bool IsPt2(const std::string& path) { return absl::EndsWith(path, ".pt2"); }

std::vector<Value> KeySteps() {
  std::vector<Value> steps;
  if (FLAGS_key.empty()) return steps;
  for (const absl::string_view step : absl::StrSplit(FLAGS_key, '.')) steps.emplace_back(step);
  return steps;
}

// The part under --key. Other parts may hold objects that are refused.
absl::StatusOr<OpenedFile> OpenPt(const std::string& path) {
  OpenedFile file;
  LOCKSTEP_RETURN_IF_ERROR(file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const file::ByteSource source, file::OpenFile(path));
    LOCKSTEP_ASSIGN_OR_RETURN(file.value, archive::ReadArchiveEntry(source, KeyPath(KeySteps()),
                                                                    {.map_location = "cpu"}, &file.saved_devices));
    return absl::OkStatus();
  }));
  return file;
}

absl::StatusOr<OpenedFile> OpenSafetensors(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(Safetensors loaded, LoadSafetensors(path));
  absl::StatusOr<Value> part = Get(loaded.tensors, KeyPath(KeySteps()));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(part.status(), path));
  return OpenedFile{*std::move(part), std::move(loaded.metadata), loaded.has_metadata, {}};
}

absl::StatusOr<OpenedFile> OpenPt2(const std::string& path) {
  OpenedFile file;
  LOCKSTEP_RETURN_IF_ERROR(file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const file::ByteSource source, file::OpenFile(path));
    LOCKSTEP_RETURN_IF_ERROR(file::CheckForeignFormat(source));
    LOCKSTEP_ASSIGN_OR_RETURN(const Value programs, ReadPrograms(source));
    LOCKSTEP_ASSIGN_OR_RETURN(file.value, Get(programs, KeyPath(KeySteps())));
    return absl::OkStatus();
  }));
  return file;
}

// The whole file, or the part under --key.
absl::StatusOr<OpenedFile> Open(const std::string& path) {
  if (IsPt2(path)) return OpenPt2(path);
  return IsSafetensors(path) ? OpenSafetensors(path) : OpenPt(path);
}

absl::Status List(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, FLAGS_json ? ListJson(file) : ListText(file));
  std::cout << text;
  return absl::OkStatus();
}

absl::Status Verify(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string totals, Totals(file));
  std::cout << path << ": " << (IsSafetensors(path) ? "its header is sound, and the format has no checksums" : "sound")
            << "; " << totals << std::endl;
  return absl::OkStatus();
}

absl::Status Digest(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, DigestText(file.value));
  std::cout << text;
  return absl::OkStatus();
}

// True if they are the same.
absl::StatusOr<bool> Diff(const std::string& a, const std::string& b) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile left, Open(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile right, Open(b));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> lines, Differences(left.value, right.value));
  for (const std::string& line : lines) std::cout << line << "\n";
  if (lines.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string totals, Totals(left));
    std::cout << "equal: " << totals << "\n";
  }
  return lines.empty();
}

// Joins only dicts: no format names the elements of a list.
absl::Status Flatten(const std::string& prefix, const Value& dict, Value& flat) {
  for (const auto& [key, value] : dict.entries()) {
    if (!key.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(KeyPath(std::vector<Value>{key}).ToString(), " in \"", prefix,
                                                     "\": expected a str as key, found ", key.type_name()));
    }
    const std::string name = prefix.empty() ? key.string_value() : absl::StrCat(prefix, ".", key.string_value());
    if (value.is_dict()) {
      LOCKSTEP_RETURN_IF_ERROR(Flatten(name, value, flat));
      continue;
    }
    if (flat.Find(name)) return absl::InvalidArgumentError(absl::StrCat("two values named \"", name, "\""));
    flat.Set(name, value);
  }
  return absl::OkStatus();
}

absl::Status ConvertToSafetensors(const OpenedFile& file, const std::string& from, const std::string& to) {
  if (!file.value.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a dict of tensors, found ", file.value.type_name()));
  }
  // Limits the expansion of dicts that share elements.
  LOCKSTEP_RETURN_IF_ERROR(Leaves(file.value).status());
  Value flat = Value::Dict();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(Flatten("", file.value, flat), from));
  if (!IsSafetensors(from)) return SaveSafetensors(to, flat, {{"format", "pt"}});
  return SaveSafetensors(to, Safetensors{std::move(flat), file.metadata, file.has_metadata});
}

absl::Status Convert(const std::string& from, const std::string& to) {
  if (IsPt2(to)) return absl::InvalidArgumentError(absl::StrCat(to, ": only torch.export makes a program"));
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile file, Open(from));
  if (!IsSafetensors(to)) return Save(to, file.value);
  const absl::Status status = ConvertToSafetensors(file, from, to);
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), " (--key chooses a part of the file)"));
}

int Fail(const absl::Status& status, int exit_code) {
  if (status.ok()) return 0;
  std::cerr << "inspect: " << status.message() << std::endl;
  return exit_code;
}

// The command with its files, or the error of the command line.
absl::StatusOr<std::string> CommandOf(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string all = absl::StrJoin(names, ", ");
  if (arguments.empty()) return absl::InvalidArgumentError(absl::StrCat("expected one of ", all, "; --help shows how"));
  for (const Command& command : kCommands) {
    if (arguments[0] != command.name) continue;
    if (arguments.size() == command.files + 1) return arguments[0];
    return absl::InvalidArgumentError(absl::StrCat("expected ", command.name, " ", command.arguments, ", found ",
                                                   arguments.size() - 1, " files; --help shows how"));
  }
  const std::optional<std::string> nearest = NearestName(arguments[0], names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown command \"", arguments[0], "\"; ",
                   nearest ? absl::StrCat("did you mean ", *nearest, "?") : absl::StrCat("expected one of ", all, ";"),
                   " --help shows how"));
}

int Run(const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> command = CommandOf(arguments);
  if (!command.ok()) return Fail(command.status(), 2);
  if (*command == "list") return Fail(List(arguments[1]), 1);
  if (*command == "verify") return Fail(Verify(arguments[1]), 1);
  if (*command == "digest") return Fail(Digest(arguments[1]), 1);
  if (*command == "convert") return Fail(Convert(arguments[1], arguments[2]), 1);
  const absl::StatusOr<bool> same = Diff(arguments[1], arguments[2]);
  return same.ok() ? (*same ? 0 : 1) : Fail(same.status(), 2);
}

}  // namespace
}  // namespace lockstep::checkpoint::inspect

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.arguments = "list|verify|digest|diff|convert FILE [FILE]";
  usage.max_arguments = 3;
  usage.description = lockstep::checkpoint::inspect::kDescription;
  return lockstep::checkpoint::inspect::Run(lockstep::ParseCommandLine(argc, argv, usage));
}
