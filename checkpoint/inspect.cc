// What is in a checkpoint, whether it is sound, how two differ, and the other format. See --help.

#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gflags/gflags.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/internal/archive_reader.h"
#include "lockstep/checkpoint/internal/at_path.h"
#include "lockstep/checkpoint/internal/difference.h"
#include "lockstep/checkpoint/internal/file_source.h"
#include "lockstep/checkpoint/internal/leaves.h"
#include "lockstep/checkpoint/internal/listing.h"
#include "lockstep/checkpoint/safetensors.h"

DEFINE_bool(json, false, "list: as JSON");
DEFINE_string(key, "", "the part of the file to work on, as \"state_dict\" or \"ema.state_dict\"");

namespace lockstep::checkpoint {
namespace {

using internal::OpenedFile;

constexpr char kUsage[] =
    R"(Looks into checkpoints: PyTorch's .pt files, and safetensors files, which it knows by their names' end, .safetensors.

  inspect list FILE [--json]    each tensor's name, dtype, shape, bytes and the device it was saved on; other values in short
  inspect verify FILE           reads all and checks it, a .pt file's checksums too; names the record that is damaged
  inspect diff A B              what is in one only, has another dtype or shape, or other elements: how many, and by how much
  inspect convert IN OUT        writes OUT in the format of its name; nested dicts are joined with dots for safetensors

  --key=a.b                     only what stands under these keys of the file (of both in diff)

No GPU is needed: all is loaded to the CPU, and what convert writes is on the CPU. A .pt file becomes a safetensors file with
metadata {"format": "pt"}; metadata do not go into a .pt file.

The exit code is 0 if all is well, 1 if a file is damaged, cannot be converted, or two differ, 2 for a mistake in the command
line and where diff cannot read its files.
)";

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
  return OpenedFile{std::move(loaded.tensors), std::move(loaded.metadata), {}};
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
  return lines.empty();
}

// Only dicts are joined: what a list's elements are called is no format's business.
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
  return SaveSafetensors(to, flat, IsSafetensors(from) ? file.metadata : SafetensorsMetadata{{"format", "pt"}});
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

// gflags' own parser would exit with 1, which is diff's "they differ".
absl::Status CheckFlags(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const absl::string_view name = absl::StripPrefix(absl::StripPrefix(argument, "-"), "-");
    if (name.size() == argument.size() || name == "json" || name == "help" || absl::StartsWith(name, "key=")) continue;
    return absl::InvalidArgumentError(absl::StrCat("unknown flag ", argument, "; --help lists them"));
  }
  return absl::OkStatus();
}

int Run(const std::vector<std::string>& arguments) {
  const auto is = [&](const char* command, size_t files) {
    return arguments.size() == files + 1 && arguments[0] == command;
  };
  if (is("list", 1)) return Fail(List(arguments[1]), 1);
  if (is("verify", 1)) return Fail(Verify(arguments[1]), 1);
  if (is("convert", 2)) return Fail(Convert(arguments[1], arguments[2]), 1);
  if (!is("diff", 2)) return Fail(absl::InvalidArgumentError("no such command; --help shows how"), 2);
  const absl::StatusOr<bool> same = Diff(arguments[1], arguments[2]);
  return same.ok() ? (*same ? 0 : 1) : Fail(same.status(), 2);
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  const absl::Status flags = lockstep::checkpoint::CheckFlags(std::vector<std::string>(argv + 1, argv + argc));
  if (!flags.ok()) return lockstep::checkpoint::Fail(flags, 2);
  gflags::ParseCommandLineNonHelpFlags(&argc, &argv, true);
  if (gflags::GetCommandLineFlagInfoOrDie("help").current_value == "true") {
    std::cout << lockstep::checkpoint::kUsage;
    return 0;
  }
  return lockstep::checkpoint::Run(std::vector<std::string>(argv + 1, argv + argc));
}
