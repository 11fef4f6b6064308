// The objects of a pickle that are refused. Each leaves a node of kind kRefused behind, so that the rest can be read
// and the error can say where in the value the object stands: ["optimizer"]["lr"], not byte 1234.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_PICKLE_REFUSALS_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_PICKLE_REFUSALS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/internal/pickle_graph.h"

namespace lockstep::checkpoint::internal {

class PickleRefusals {
 public:
  // Whether `status` refuses one object, InvalidArgument or Unimplemented; other errors mean damage, and end the read.
  static bool Is(const absl::Status& status);
  // What one more takes in memory.
  static size_t Cost(const absl::Status& status);

  PickleNode Add(absl::Status status, size_t byte);
  // `object` was given `state`. A torch.nn.Module, whatever its class is called, is known by it.
  void SetState(PickleNode object, PickleNode state, const PickleGraph& graph);

  bool empty() const { return refusals_.empty(); }
  // The first, by its byte.
  absl::Status First() const;
  // The first in `graph`, by its path; First() where it is not part of the value. Takes the graph's size in time and
  // memory. Requires: not empty.
  absl::Status Locate(const PickleGraph& graph) const;

 private:
  struct Refusal {
    absl::Status status;
    size_t byte;
  };

  std::vector<Refusal> refusals_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_PICKLE_REFUSALS_H_
