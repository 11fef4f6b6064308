// The refused objects of a pickle. Each leaves a node of kind kRefused, so that the rest can be read and the error can
// name the object's position in the value: ["optimizer"]["lr"], not byte 1234.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_REFUSALS_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_REFUSALS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "lockstep/checkpoint/pickle/graph.h"

namespace lockstep::checkpoint::pickle {

// Returns whether `status` refuses one object, InvalidArgument or Unimplemented; other errors mean damage, and end the
// read.
bool IsRefusal(const absl::Status& status);

// The memory for one more.
size_t CostOfRefusal(const absl::Status& status);

PickleNode AddRefusal(absl::Status status, size_t byte, PickleGraph& graph);

// `state` was set on `object`. It identifies a torch.nn.Module, whatever its class is called.
void SetStateOfRefusal(PickleNode object, PickleNode state, PickleGraph& graph);

// The error of the first refused object in the pickle, with its byte. Requires: there is one.
absl::Status FirstRefusal(const PickleGraph& graph);

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_REFUSALS_H_
