#include "lockstep/checkpoint/checkpoint.h"

#include <functional>
#include <string>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/archive/reader.h"
#include "lockstep/checkpoint/archive/writer.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/path.h"

namespace lockstep::checkpoint {
namespace {

using file::ByteSource;

absl::Status SaveTo(const std::string& path, const Value& value, const SaveOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const archive::EncodedValue encoded, archive::Encode(value));
  return archive::WriteEncodedFile(path, encoded, options);
}

// `read` of the file at `path`; errors name it.
absl::StatusOr<Value> ReadFrom(const std::string& path,
                               const std::function<absl::StatusOr<Value>(const ByteSource&)>& read) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(file::AtPath(path, [&] {
    const absl::StatusOr<ByteSource> source = file::OpenFile(path);
    value = source.ok() ? read(*source) : source.status();
    return value.status();
  }));
  return value;
}

}  // namespace

absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options) {
  return file::AtPath(path, [&] { return SaveTo(std::string(path), value, options); });
}

absl::StatusOr<Value> Load(absl::string_view path, const LoadOptions& options) {
  return ReadFrom(std::string(path), [&](const ByteSource& source) { return archive::ReadArchive(source, options); });
}

absl::StatusOr<Value> LoadEntry(absl::string_view path, const KeyPath& key, const LoadOptions& options) {
  return ReadFrom(std::string(path),
                  [&](const ByteSource& source) { return archive::ReadArchiveEntry(source, key, options); });
}

}  // namespace lockstep::checkpoint
