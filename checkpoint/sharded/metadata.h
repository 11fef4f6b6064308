// What a sharded checkpoint holds, by its .metadata file: names, shapes, dtypes, and which bytes of which file are
// what.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const ShardedMetadata metadata, ReadShardedMetadata("/data/step_1000"));
//   for (const ShardedItem& item : metadata.items) Print(item.name, item.sizes, item.chunks.size());
//
// The layout is that of torch.distributed.checkpoint 2.11 (DCP): .metadata is a pickle of its Metadata class, whose
// source, torch/distributed/checkpoint/metadata.py and filesystem.py, is the format's only description.

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

// A part of a tensor, or a whole plain value, as one .pt archive of `length` bytes in the middle of a file.
struct ShardedChunk {
  Box box;           // of a plain value without dimensions
  std::string file;  // a name within the checkpoint's directory
  int64_t offset = 0;
  int64_t length = 0;
};

// An entry of the state dict.
struct ShardedItem {
  std::string name;  // the path's steps, joined by "."
  // Where in the nested state dict it was: strings for dicts' keys, ints for lists' indices.
  std::vector<Value> path;
  bool is_tensor = false;
  // Of a tensor.
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool requires_grad = false;
  std::vector<int64_t> sizes;
  // A plain value has one. A tensor's share no element, but may leave some out (LoadSharded says so where they are
  // wanted).
  std::vector<ShardedChunk> chunks;
};

struct ShardedMetadata {
  std::vector<ShardedItem> items;  // in the state dict's order; no two of one name
};

// Reads `directory`/.metadata, and no other file. Nothing in it is executed: its classes are known by an allow-list.
//
// It may take 64 times the file's size beside options.memory_limit; of the other options none matters here. Errors name
// the file and the item. NotFound: there is no .metadata, so no checkpoint or an unfinished one. DataLoss: damaged or
// contradictory (parts that overlap or reach outside their tensor, or share bytes of a file). InvalidArgument: a Python
// object that is not allowed, a file name that leads out of the directory. Unimplemented: items transformed by an
// extension, dtypes that .pt files have not.
absl::StatusOr<ShardedMetadata> ReadShardedMetadata(absl::string_view directory, const LoadOptions& options = {});

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_METADATA_H_
