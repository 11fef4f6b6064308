// Reads the contents of a sharded checkpoint from its .metadata file: names, shapes, dtypes, and the file positions of
// all parts.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const ShardedMetadata metadata, ReadShardedMetadata("/data/step_1000"));
//   for (const ShardedItem& item : metadata.items) Print(item.name, item.sizes, item.chunks.size());
//
// The layout is that of torch.distributed.checkpoint 2.11 (DCP). .metadata is a pickle of its Metadata class. The only
// specification is its source, torch/distributed/checkpoint/metadata.py and filesystem.py.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_METADATA_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_METADATA_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/sharded/box.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// A part of a tensor, or a whole plain value: a .pt archive of `length` bytes at `offset` in a file.
struct ShardedChunk {
  Box box;           // without dimensions for a plain value
  std::string file;  // name within the checkpoint's directory
  int64_t offset = 0;
  int64_t length = 0;
};

// An entry of the state dict.
struct ShardedItem {
  std::string name;  // the steps of `path`, joined by "."
  // Position in the nested state dict: strings for keys of dicts, ints for indices of lists.
  std::vector<Value> path;
  bool is_tensor = false;
  // For tensors only.
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool requires_grad = false;
  std::vector<int64_t> sizes;
  // A plain value has one chunk. The chunks of a tensor do not overlap, but may leave elements out. LoadSharded returns
  // an error if it needs these.
  std::vector<ShardedChunk> chunks;
};

struct ShardedMetadata {
  std::vector<ShardedItem> items;  // in the order of the state dict; names are unique
};

// Reads `directory`/.metadata and no other file. Nothing in it is executed: only classes of an allow-list are accepted.
//
// It may use 64 times the size of the file besides options.memory_limit. Other options are ignored. Errors name the
// file and the item. NotFound: .metadata does not exist, so a checkpoint is missing or unfinished. DataLoss: it
// is damaged or contradictory (parts overlap, exceed their tensor, or share bytes of a file). InvalidArgument: a Python
// object is not allowed, or a file name leads out of the directory. Unimplemented: an item was transformed by an
// extension, or has a dtype that .pt files do not support.
absl::StatusOr<ShardedMetadata> ReadShardedMetadata(absl::string_view directory, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_METADATA_H_
