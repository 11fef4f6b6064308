// Which rank writes which part of a sharded checkpoint.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVE_PLAN_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVE_PLAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/state_dict.h"

namespace lockstep::checkpoint::internal {

// What a rank has. The places of the parts are made up, such that EncodeMetadata and DecodeMetadata take it to other
// ranks. A part without elements is left out, unless the tensor has none either; then it stands for the whole.
//
// InvalidArgument, naming the item: a name that is not UTF-8, empty or there twice; parts outside their tensor, of
// several dtypes or overlapping. Unimplemented: a dtype that .pt files have not.
absl::StatusOr<ShardedMetadata> Describe(const ShardedStateDict& state);

struct SavePlan {
  // All ranks' items, in the order in which they come up from rank 0 on; the parts' places are not known yet.
  ShardedMetadata whole;
  // writers[i][j]: the rank that writes part j of item i.
  std::vector<std::vector<int>> writers;
};

// The plan that every rank makes of what every rank has. A part that several ranks have goes to the one of them that
// has the fewest bytes so far, the lowest of equals; a plain value counts as one byte. So does DCP, but by the size of
// the whole tensor where this takes that of the part. Source: torch/distributed/checkpoint/_dedup_save_plans.py.
//
// InvalidArgument, naming the item and the ranks: they differ about an item, their parts overlap, or leave something
// out.
absl::StatusOr<SavePlan> MakeSavePlan(const std::vector<ShardedMetadata>& ranks);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVE_PLAN_H_
