// What is in a checkpoint, whether it is sound, how two differ, and the other format. See --help.

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
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/internal/archive_reader.h"
#include "lockstep/checkpoint/internal/at_path.h"
#include "lockstep/checkpoint/internal/difference.h"
#include "lockstep/checkpoint/internal/file_source.h"
#include "lockstep/checkpoint/internal/leaves.h"
#include "lockstep/checkpoint/internal/listing.h"
#include "lockstep/checkpoint/safetensors.h"

DEFINE_bool(json, false, "list prints JSON.");
DEFINE_string(key, "", "Only what stands under these keys of the file (of both in diff), such as ema.state_dict.");

namespace lockstep::checkpoint {
namespace {

using internal::OpenedFile;

constexpr char kDescription[] =
    R"(Looks into checkpoints: PyTorch's .pt files, and safetensors files, which it knows by their names' end, .safetensors.

  inspect list FILE [--json]  each tensor's name, dtype, shape, bytes and the device it was saved on; other values in short
  inspect verify FILE         reads all and checks it, a .pt file's checksums too; names the record that is damaged
  inspect diff A B            what is in one only, has another dtype or shape, or other elements: how many, and by how much
  inspect convert IN OUT      writes OUT in the format of its name; nested dicts are joined with dots for safetensors

No GPU is needed: all is loaded to the CPU, and what convert writes is on the CPU. A .pt file becomes a safetensors file with
metadata {"format": "pt"}; metadata do not go into a .pt file.

The exit code is 0 if all is well, 1 if a file is damaged, cannot be converted, or two differ, 2 for a mistake in the command
line and where diff cannot read its files.)";

struct Command {
  const char* name;
  size_t files;
  const char* arguments;
};

constexpr Command kCommands[] = {
    {"list", 1, "FILE"}, {"verify", 1, "FILE"}, {"diff", 2, "A B"}, {"convert", 2, "IN OUT"}};

bool IsSafetensors(const std::string& path) { return absl::EndsWith(path, ".safetensors"); }

absl::StatusOr<OpenedFile> OpenPt(const std::string& path) {
  OpenedFile file;
  LOCKSTEP_RETURN_IF_ERROR(internal::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const internal::ByteSource source, internal::OpenFile(path));
    LOCKSTEP_ASSIGN_OR_RETURN(file.value, internal::ReadArchive(source, {.map_location = "cpu"}, &file.saved_devices));
    return absl::OkStatus();
  }));
  return file;
}

absl::StatusOr<OpenedFile> OpenSafetensors(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(Safetensors loaded, LoadSafetensors(path));
  return OpenedFile{std::move(loaded.tensors), std::move(loaded.metadata), loaded.has_metadata, {}};
}

// The whole file, or the part under --key.
absl::StatusOr<OpenedFile> Open(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(OpenedFile file, IsSafetensors(path) ? OpenSafetensors(path) : OpenPt(path));
  if (FLAGS_key.empty()) return file;
  std::vector<Value> steps;
  for (const absl::string_view step : absl::StrSplit(FLAGS_key, '.')) steps.emplace_back(step);
  const absl::StatusOr<Value> part = Get(file.value, KeyPath(std::move(steps)));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(part.status(), path));
  file.value = *part;
  return file;
}

absl::Status List(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, FLAGS_json ? internal::ListJson(file) : internal::ListText(file));
  std::cout << text;
  return absl::OkStatus();
}

absl::Status Verify(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile file, Open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string totals, internal::Totals(file));
  std::cout << path << ": " << (IsSafetensors(path) ? "its header is sound, and the format has no checksums" : "sound")
            << "; " << totals << std::endl;
  return absl::OkStatus();
}

// Whether they are the same.
absl::StatusOr<bool> Diff(const std::string& a, const std::string& b) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile left, Open(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const OpenedFile right, Open(b));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> lines, internal::Differences(left.value, right.value));
  for (const std::string& line : lines) std::cout << line << "\n";
  if (lines.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string totals, internal::Totals(left));
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
    if (flat.Find(name) != nullptr) return absl::InvalidArgumentError(absl::StrCat("two values named \"", name, "\""));
    flat.Set(name, value);
  }
  return absl::OkStatus();
}

absl::Status ConvertToSafetensors(const OpenedFile& file, const std::string& from, const std::string& to) {
  if (!file.value.is_dict()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a dict of tensors, found ", file.value.type_name()));
  }
  // Bounds what dicts that share their elements unfold to.
  LOCKSTEP_RETURN_IF_ERROR(internal::Leaves(file.value).status());
  Value flat = Value::Dict();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(Flatten("", file.value, flat), from));
  if (!IsSafetensors(from)) return SaveSafetensors(to, flat, {{"format", "pt"}});
  return SaveSafetensors(to, Safetensors{std::move(flat), file.metadata, file.has_metadata});
}

absl::Status Convert(const std::string& from, const std::string& to) {
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

// The command, with as many files as it takes, or what is wrong with the line.
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
  if (*command == "convert") return Fail(Convert(arguments[1], arguments[2]), 1);
  const absl::StatusOr<bool> same = Diff(arguments[1], arguments[2]);
  return same.ok() ? (*same ? 0 : 1) : Fail(same.status(), 2);
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.arguments = "list|verify|diff|convert FILE [FILE]";
  usage.max_arguments = 3;
  usage.description = lockstep::checkpoint::kDescription;
  return lockstep::checkpoint::Run(lockstep::ParseCommandLine(argc, argv, usage));
}
