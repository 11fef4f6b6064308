#include "lockstep/checkpoint/sharded/metadata.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"

namespace lockstep::checkpoint {
namespace {

absl::StatusOr<ShardedMetadata> ReadFrom(const std::string& path, const LoadOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const file::ByteSource source, file::OpenFile(path));
  std::string pickle(source.size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, &pickle[0], pickle.size()));
  return internal::DecodeMetadata(pickle, options.memory_limit + pickle::kPickleMemoryPerByte * pickle.size());
}

}  // namespace

absl::StatusOr<ShardedMetadata> ReadShardedMetadata(absl::string_view directory, const LoadOptions& options) {
  const std::string path = absl::StrCat(directory, "/", internal::kMetadataFile);
  absl::StatusOr<ShardedMetadata> metadata;
  absl::Status status = TorchStatus("", [&] { metadata = ReadFrom(path, options); });
  if (status.ok()) status = metadata.status();
  if (!status.ok()) return Annotate(status, path);
  return metadata;
}

}  // namespace lockstep::checkpoint
