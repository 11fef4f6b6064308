#include "lockstep/models/exported/file.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/foreign_format.h"
#include "lockstep/checkpoint/file/path.h"
#include "lockstep/models/exported/archive.h"
#include "lockstep/models/exported/program.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::file::AtomicFile;
using checkpoint::file::ByteSource;

constexpr char kSuffix[] = ".pt2";

// The name of the archive's folder: the file's, without folders and suffix.
std::string ArchiveName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  path.remove_suffix(sizeof(kSuffix) - 1);
  return path.empty() ? "archive" : std::string(path);
}

}  // namespace

absl::StatusOr<ExportedModule> Load(absl::string_view path, const LoadOptions& options) {
  std::optional<ExportedModule> loaded;
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const ByteSource source, checkpoint::file::OpenFile(std::string(path)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::file::CheckForeignFormat(source));
    LOCKSTEP_ASSIGN_OR_RETURN(const bool safetensors, checkpoint::file::IsSafetensors(source));
    if (safetensors) return absl::InvalidArgumentError("a safetensors file, which has no program");
    LOCKSTEP_ASSIGN_OR_RETURN(Program program, ReadProgram(source, {options.device, options.program, options.verify}));
    loaded.emplace(std::make_shared<ExportedModuleImpl>(std::make_shared<const Program>(std::move(program))));
    return absl::OkStatus();
  }));
  return *loaded;
}

absl::Status Save(absl::string_view path, const ExportedModule& module, const SaveOptions& options) {
  return checkpoint::file::AtPath(path, [&]() -> absl::Status {
    if (!absl::EndsWith(path, kSuffix)) return absl::InvalidArgumentError("the name must end in .pt2");
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                              AtomicFile::Create(std::string(path), options.sync));
    LOCKSTEP_RETURN_IF_ERROR(WriteProgram([&](const void* from, size_t count) { return file->Append(from, count); },
                                          ArchiveName(path), module->program()));
    return file->Commit();
  });
}

}  // namespace lockstep::models::exported
