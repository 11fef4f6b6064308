#include <string>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/internal/archive_reader.h"
#include "lockstep/checkpoint/internal/at_path.h"
#include "lockstep/checkpoint/internal/byte_stream.h"
#include "lockstep/checkpoint/internal/file_source.h"

namespace lockstep::checkpoint {
namespace {

absl::StatusOr<Value> LoadFrom(const std::string& path, const LoadOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const internal::ByteSource source, internal::OpenFile(path));
  return internal::ReadArchive(source, options);
}

}  // namespace

absl::StatusOr<Value> Load(absl::string_view path, const LoadOptions& options) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(internal::AtPath(path, [&] {
    value = LoadFrom(std::string(path), options);
    return value.status();
  }));
  return value;
}

}  // namespace lockstep::checkpoint
