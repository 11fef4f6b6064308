#include "lockstep/checkpoint/serialize.h"

#include <cstring>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/archive/reader.h"
#include "lockstep/checkpoint/archive/writer.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/path.h"

namespace lockstep::checkpoint {
namespace {

absl::Status Append(const Value& value, std::string& bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const archive::EncodedValue encoded, archive::Encode(value));
  const file::ByteSink sink = [&](const void* from, size_t count) {
    bytes.append(static_cast<const char*>(from), count);
    return absl::OkStatus();
  };
  return archive::WriteArchive(sink, "archive", encoded);
}

file::ByteSource SourceOf(absl::string_view bytes) {
  file::ByteSource source;
  source.size = bytes.size();
  source.read = [bytes](uint64_t offset, void* to, size_t count) {
    if (offset > bytes.size() || count > bytes.size() - offset) return absl::DataLossError("the bytes end too early");
    std::memcpy(to, bytes.data() + offset, count);
    return absl::OkStatus();
  };
  return source;
}

}  // namespace

absl::StatusOr<std::string> Serialize(const Value& value) {
  std::string bytes;
  LOCKSTEP_RETURN_IF_ERROR(file::Guarded([&] { return Append(value, bytes); }));
  return bytes;
}

absl::StatusOr<Value> Deserialize(absl::string_view bytes, const LoadOptions& options) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { value = archive::ReadArchive(SourceOf(bytes), options); }));
  return value;
}

}  // namespace lockstep::checkpoint
