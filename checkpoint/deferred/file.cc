#include "lockstep/checkpoint/deferred/file.h"

#include <string>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/archive/reader.h"
#include "lockstep/checkpoint/archive/writer.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/path.h"

namespace lockstep::checkpoint {

absl::Status SaveDeferred(absl::string_view path, const Value& value, const DeferredTensors& deferred,
                          const SaveOptions& options) {
  return file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const archive::EncodedValue encoded, archive::Encode(value));
    return archive::WriteEncodedFile(std::string(path), encoded, options, &deferred);
  });
}

absl::StatusOr<Value> LoadDeferred(absl::string_view path, const KeyPath& key, DeferredTensors& deferred,
                                   const LoadOptions& options) {
  absl::StatusOr<Value> value;
  LOCKSTEP_RETURN_IF_ERROR(file::AtPath(path, [&] {
    LoadOptions on_cpu = options;
    on_cpu.map_location = "cpu";
    const absl::StatusOr<file::ByteSource> source = file::OpenFile(std::string(path));
    value = source.ok() ? archive::ReadArchiveEntry(*source, key, on_cpu, nullptr, &deferred) : source.status();
    return value.status();
  }));
  return value;
}

}  // namespace lockstep::checkpoint
