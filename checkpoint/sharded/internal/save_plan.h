// Which rank writes which part of a sharded checkpoint.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVE_PLAN_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVE_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/sharded/metadata.h"
#include "lockstep/checkpoint/sharded/state_dict.h"

namespace lockstep::checkpoint::internal {

// Describes a rank's parts. Their file positions are placeholders, so that EncodeMetadata and DecodeMetadata can pass
// them to other ranks. A part without elements is left out. If the whole tensor has none, the part stays and represents
// the whole.
//
// InvalidArgument, naming the item: a name is not UTF-8, is empty or occurs twice; parts are outside their tensor, have
// several dtypes or overlap. Unimplemented: .pt files do not support the dtype.
absl::StatusOr<ShardedMetadata> Describe(const ShardedStateDict& state);

struct SavePlan {
  // All ranks' items, in the order in which they come up from rank 0 on; the parts' places are not known yet.
  ShardedMetadata whole;
  // writers[i][j]: the rank that writes part j of item i.
  std::vector<std::vector<int>> writers;
  // holders[i][j]: the ranks that have it, ascending.
  std::vector<std::vector<std::vector<int>>> holders;
};

// The plan that every rank makes of what every rank has. A part that several ranks have goes to the one of them that
// has the fewest bytes so far, the lowest of equals; a plain value counts as one byte. So does DCP, but by the size of
// the whole tensor where this takes that of the part. Source: torch/distributed/checkpoint/_dedup_save_plans.py.
//
// InvalidArgument, naming the item and the ranks: they differ about an item, their parts overlap, or leave something
// out.
absl::StatusOr<SavePlan> MakeSavePlan(const std::vector<ShardedMetadata>& ranks);

// `hashes[rank]` are HashOf() the parts that the rank and others have, in the plan's order.
//
// InvalidArgument, naming the first item of which ranks have different contents, and the ranks.
absl::Status CheckSameContents(const SavePlan& plan, const std::vector<std::vector<uint32_t>>& hashes);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_SAVE_PLAN_H_
