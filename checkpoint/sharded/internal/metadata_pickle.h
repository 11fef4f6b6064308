// ShardedMetadata as the bytes of a .metadata file: a pickled torch.distributed.checkpoint.metadata.Metadata.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_METADATA_PICKLE_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_METADATA_PICKLE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/sharded/metadata.h"

namespace lockstep::checkpoint::internal {

inline constexpr char kMetadataFile[] = ".metadata";

// Requires what DecodeMetadata checks; and names that are UTF-8.
std::string EncodeMetadata(const ShardedMetadata& metadata);

// Errors are ReadShardedMetadata's, without the file's name.
absl::StatusOr<ShardedMetadata> DecodeMetadata(absl::string_view pickle, size_t memory_limit);

// The steps joined by ".", which is DCP's name for the item.
std::string JoinPath(const std::vector<Value>& path);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_METADATA_PICKLE_H_
