#include <memory>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/internal/archive_writer.h"
#include "lockstep/checkpoint/internal/atomic_file.h"
#include "lockstep/checkpoint/internal/encoder.h"

namespace lockstep::checkpoint {
namespace {

absl::Status SaveTo(const std::string& path, const Value& value, const SaveOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const internal::EncodedValue encoded, internal::Encode(value));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<internal::AtomicFile> file,
                            internal::AtomicFile::Create(path, options.sync));
  LOCKSTEP_RETURN_IF_ERROR(
      internal::WriteArchive([&](const void* from, size_t count) { return file->Append(from, count); },
                             internal::ArchiveNameOf(path), encoded));
  return file->Commit();
}

}  // namespace

absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options) {
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = SaveTo(std::string(path), value, options); });
  status.Update(thrown);
  return Annotate(status, path);
}

}  // namespace lockstep::checkpoint
