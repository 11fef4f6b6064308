// The refused objects of a pickle. Each leaves a node of kind kRefused, so that the rest can be read and the error can
// name the object's position in the value: ["optimizer"]["lr"], not byte 1234.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_REFUSALS_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_REFUSALS_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/checkpoint/pickle/graph.h"

namespace lockstep::checkpoint::pickle {

class PickleRefusals {
 public:
  // Whether `status` refuses one object, InvalidArgument or Unimplemented; other errors mean damage, and end the read.
  static bool Is(const absl::Status& status);
  // The memory for one more.
  static size_t Cost(const absl::Status& status);

  PickleNode Add(absl::Status status, size_t byte);
  // `state` was set on `object`. It identifies a torch.nn.Module, whatever its class is called.
  void SetState(PickleNode object, PickleNode state, const PickleGraph& graph);

  bool empty() const { return refusals_.empty(); }
  // The first, by its byte.
  absl::Status First() const;
  // The error of the first one in `graph`, with its path. First() if it is not part of the value. Takes time and memory
  // in proportion to the graph. Requires: not empty.
  absl::Status Locate(const PickleGraph& graph) const;

 private:
  struct Refusal {
    absl::Status status;
    size_t byte;
  };

  std::vector<Refusal> refusals_;
};

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_REFUSALS_H_
