#include <functional>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/internal/archive_reader.h"
#include "lockstep/checkpoint/internal/at_path.h"
#include "lockstep/checkpoint/internal/byte_stream.h"
#include "lockstep/checkpoint/internal/file_source.h"

namespace lockstep::checkpoint {
namespace {

// `read` of the file at `path`; errors name it.
absl::StatusOr<Value> ReadFrom(const std::string& path,
                               const std::function<absl::StatusOr<Value>(const internal::ByteSource&)>& read) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(internal::AtPath(path, [&] {
    const absl::StatusOr<internal::ByteSource> source = internal::OpenFile(path);
    value = source.ok() ? read(*source) : source.status();
    return value.status();
  }));
  return value;
}

}  // namespace

absl::StatusOr<Value> Load(absl::string_view path, const LoadOptions& options) {
  return ReadFrom(std::string(path),
                  [&](const internal::ByteSource& source) { return internal::ReadArchive(source, options); });
}

absl::StatusOr<Value> LoadEntry(absl::string_view path, absl::string_view key, const LoadOptions& options) {
  return ReadFrom(std::string(path),
                  [&](const internal::ByteSource& source) { return internal::ReadArchiveEntry(source, key, options); });
}

}  // namespace lockstep::checkpoint
