// Learns from the first backward of a static graph what the later ones will do.

#ifndef LOCKSTEP_DDP_INTERNAL_LEARNED_GRAPH_H_
#define LOCKSTEP_DDP_INTERNAL_LEARNED_GRAPH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::ddp::internal {

// The number of parts in which each parameter's gradient arrives, in every backward of a static graph. The first
// backward counts them, and is reduced at its end. In later ones a gradient is complete when its last part has arrived,
// and a parameter without parts is unused.
class LearnedGraph {
 public:
  // `names`: of the parameters, for errors, which begin with the rank.
  LearnedGraph(int rank, std::vector<std::string> names);

  // Returns whether a first backward has been counted.
  bool known() const { return known_; }

  void BeginBackward() { remaining_ = expected_; }

  // A part of the parameter's gradient arrived. Returns whether the gradient is complete, which it never is in the
  // first backward. FailedPrecondition if more parts arrive than in the first backward.
  absl::StatusOr<bool> Arrive(int parameter);

  // The first backward has ended.
  void SetKnown() { known_ = true; }

  // A backward is over, or was given up. Drops the counts of an incomplete first backward.
  void EndBackward();

  // The parameters without a gradient. Only when known().
  std::vector<int> Unused() const;

 private:
  const int rank_;
  const std::vector<std::string> names_;
  bool known_ = false;
  std::vector<int> expected_;
  std::vector<int> remaining_;  // in this backward
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_LEARNED_GRAPH_H_
