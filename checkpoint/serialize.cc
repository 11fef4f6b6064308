#include "lockstep/checkpoint/serialize.h"

#include <cstring>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/internal/archive_reader.h"
#include "lockstep/checkpoint/internal/archive_writer.h"
#include "lockstep/checkpoint/internal/at_path.h"
#include "lockstep/checkpoint/internal/byte_stream.h"
#include "lockstep/checkpoint/internal/encoder.h"

namespace lockstep::checkpoint {
namespace {

absl::Status Append(const Value& value, std::string& bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const internal::EncodedValue encoded, internal::Encode(value));
  const internal::ByteSink sink = [&](const void* from, size_t count) {
    bytes.append(static_cast<const char*>(from), count);
    return absl::OkStatus();
  };
  return internal::WriteArchive(sink, "archive", encoded);
}

internal::ByteSource SourceOf(absl::string_view bytes) {
  internal::ByteSource source;
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
  LOCKSTEP_RETURN_IF_ERROR(internal::Guarded([&] { return Append(value, bytes); }));
  return bytes;
}

absl::StatusOr<Value> Deserialize(absl::string_view bytes, const LoadOptions& options) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { value = internal::ReadArchive(SourceOf(bytes), options); }));
  return value;
}

}  // namespace lockstep::checkpoint
