// The loop over a rank's virtual ranks in a step.

#ifndef LOCKSTEP_FSDP_INTERNAL_VIRTUAL_STEP_H_
#define LOCKSTEP_FSDP_INTERNAL_VIRTUAL_STEP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/fsdp/internal/buffers.h"
#include "lockstep/fsdp/internal/shard_reducer.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::internal {

// Begin(), then BeginRank() and EndRank() for each of ranks() in turn, then Leave(). Without Options::virtual_ranks a rank
// is its only virtual rank, and nothing is checked. Errors are thrown as StatusError.
class VirtualStep {
 public:
  // `who` begins each error. `buffers` and `reducer` are borrowed.
  VirtualStep(const Options& options, std::string who, Buffers* buffers, ShardReducer* reducer)
      : on_(options.virtual_ranks > 0),
        seed_(options.virtual_seed),
        who_(std::move(who)),
        buffers_(buffers),
        reducer_(reducer) {}

  void Begin(int64_t step);
  // The place of each in the step is its index.
  const std::vector<int>& ranks() const { return ranks_; }
  void BeginRank(size_t place);
  void EndRank(size_t place);
  // `thrown`: the loop was left by an exception.
  void Leave(bool thrown);

  // FailedPrecondition if the last loop was left early.
  const absl::Status& left_early() const { return left_early_; }
  // Before a forward, which may need to be in the loop.
  void CheckForward() const;
  // The number of backward passes that the optimizer's step needs at least.
  int expected() const { return on_ && !ranks_.empty() ? static_cast<int>(ranks_.size()) : 1; }
  // After the optimizer's step.
  void Clear() { ranks_.clear(); }

 private:
  const bool on_;
  const int64_t seed_;
  const std::string who_;
  Buffers* const buffers_;
  ShardReducer* const reducer_;
  int64_t step_ = 0;
  std::vector<int> ranks_;
  absl::Status left_early_;  // the last loop
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_VIRTUAL_STEP_H_
