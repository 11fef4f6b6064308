// An optimizer's state in the form of Python's optimizer.state_dict(), and back, so that training begun in one language
// goes on in the other.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, OptimizerStateDict(sgd));
//   Save("last.pt", Value::Dict({{"epoch", 3}, {"state_dict", StateDict(*model)}, {"optimizer", optimizer_state}}));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(sgd, *checkpoint.Find("optimizer")));
//
// torch::optim::SGD, which continues to the bit. Other optimizers are Unimplemented, naming the type.

#ifndef LOCKSTEP_CHECKPOINT_OPTIMIZER_H_
#define LOCKSTEP_CHECKPOINT_OPTIMIZER_H_

#include <torch/optim/optimizer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// {"state": {0: {"momentum_buffer": tensor}, ...}, "param_groups": [{"lr": ..., ..., "params": [0, 1, ...]}]}.
// Parameters are numbered in the groups' order. Tensors share the optimizer's memory: Save before the next step, or
// clone.
absl::StatusOr<Value> OptimizerStateDict(const torch::optim::Optimizer& optimizer);

// Restores the groups' options and every parameter's state; a parameter without state in `state_dict` has none
// afterwards. Groups and parameters match by position; their names and the keys that C++ has no place for, such as a
// scheduler's initial_lr, are passed over. Buffers are copied, to their parameter's device and dtype. All or nothing:
// on an error the optimizer is as it was. InvalidArgument: other groups, numbers of parameters or shapes than the
// optimizer has, a key missing or of a wrong type; names the key. Unimplemented: an optimizer other than SGD, or
// maximize=True and differentiable=True, which C++'s SGD does not have.
absl::Status LoadOptimizerStateDict(torch::optim::Optimizer& optimizer, const Value& state_dict);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIMIZER_H_
