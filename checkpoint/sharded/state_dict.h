// What a sharded checkpoint is saved from and loaded into: names, and for each a plain value, a tensor that every rank
// has whole, or the parts of a tensor that this rank has.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(ShardedStateDict state, FlattenStateDict(Value::Dict({{"epoch", 3},
//                                                                                   {"model", StateDict(*model)}})));
//   // This rank's rows, 256 * rank to 256 * (rank + 1), of a table that nobody has whole.
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

// A part of a tensor: `tensor` is what begins at `offsets` in the whole. Shares the tensor's memory.
struct Shard {
  std::vector<int64_t> offsets;
  at::Tensor tensor;
};

// A tensor of which each rank has parts, or none. The parts of all ranks cover it; a part that several ranks have (the
// same offsets and sizes) is the same on all of them, and parts that are not the same do not overlap.
struct ShardedTensor {
  std::vector<int64_t> sizes;
  std::vector<Shard> shards;
};

struct ShardedEntry {
  // Where it stands in the nested state dict that Python's side has: strings for dicts' keys, ints for lists' indices.
  // The steps joined by "." are its name in the checkpoint.
  KeyPath path;
  std::variant<Value, ShardedTensor> value;

  std::string name() const;
};

using ShardedStateDict = std::vector<ShardedEntry>;

// The entries of a nested dict, cut as torch.distributed.checkpoint cuts it: dicts, and lists that hold tensors, dicts
// or such lists, become an entry for each element; all else is an entry. So empty dicts leave nothing, tuples stay
// whole, and an OrderedDict comes back as a dict. Keys become strings, as in Python. Tensors keep sharing their memory.
//
// InvalidArgument: `nested` is no dict, a key is a float or bytes, containers are nested more than 500 deep.
absl::StatusOr<ShardedStateDict> FlattenStateDict(const Value& nested);

// The value of the entry `name`, or nullptr where there is none or it is a ShardedTensor.
const Value* FindValue(const ShardedStateDict& state, absl::string_view name);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_STATE_DICT_H_
