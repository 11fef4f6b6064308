// The input and output of sharded checkpoints. Each entry has a name and one of these: a plain value, a tensor that
// every rank has whole, or this rank's parts of a tensor.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ShardedStateDict state, FlattenStateDict(Value::Dict({{"epoch", 3},
//                                                                                   {"model", StateDict(*model)}})));
//   // This rank's rows, 256 * rank to 256 * (rank + 1), of a table that no rank has whole.
//   state.push_back({{"embedding", "weight"}, ShardedTensor{{1024, 64}, {{{256 * rank, 0}, rows}}}});

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_STATE_DICT_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_STATE_DICT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// A part of a tensor: `tensor` begins at `offsets` in the whole. Shares the tensor's memory.
struct Shard {
  std::vector<int64_t> offsets;
  at::Tensor tensor;
};

// A tensor of which each rank has some parts, or none. The parts of all ranks together must cover it. Several ranks may
// have the same part (the same offsets and sizes), with the same contents. Parts that differ must not overlap.
struct ShardedTensor {
  std::vector<int64_t> sizes;
  std::vector<Shard> shards;
};

struct ShardedEntry {
  // Position in the nested state dict of Python: strings for keys of dicts, ints for indices of lists. The steps joined
  // by "." are the entry's name in the checkpoint.
  KeyPath path;
  std::variant<Value, ShardedTensor> value;

  std::string name() const;
};

using ShardedStateDict = std::vector<ShardedEntry>;

// Flattens a nested dict as torch.distributed.checkpoint does. A dict, or a list that contains tensors, dicts or such
// lists, becomes one entry for each element. Everything else becomes one entry. So empty dicts disappear, tuples stay
// whole, and an OrderedDict loads as a dict. As in Python, keys become strings. Tensors share their memory with
// `nested`.
//
// InvalidArgument: `nested` is not a dict, a key is a float or bytes, or containers are nested more than 500 deep.
absl::StatusOr<ShardedStateDict> FlattenStateDict(const Value& nested);

// The value of the entry `name`, or nullptr if it does not exist or is a ShardedTensor.
const Value* FindValue(const ShardedStateDict& state, absl::string_view name);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_STATE_DICT_H_
