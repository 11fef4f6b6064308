// What the first backward of a static graph teaches about the others.

#ifndef LOCKSTEP_DDP_INTERNAL_LEARNED_GRAPH_H_
#define LOCKSTEP_DDP_INTERNAL_LEARNED_GRAPH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep::ddp::internal {

// How many parts each parameter's gradient arrives in, in every backward of a static graph. The first backward counts
// them, and is reduced at its end. In later ones a gradient is complete when its last part has arrived, and a parameter
// without parts is unused.
class LearnedGraph {
 public:
  // `names`: of the parameters, for errors, which begin with the rank.
  LearnedGraph(int rank, std::vector<std::string> names);

  // Whether a backward has been learned from.
  bool known() const { return known_; }

  void BeginBackward() { remaining_ = expected_; }

  // A part of the parameter's gradient arrived. Returns whether the gradient is complete, which it never is in the
  // backward that is learned from. FailedPrecondition if more parts arrive than in that one.
  absl::StatusOr<bool> Arrive(int parameter);

  // The backward that is learned from has ended.
  void SetKnown() { known_ = true; }

  // A backward is over, or was given up. What an incomplete first one has counted does not count.
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
