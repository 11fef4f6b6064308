// An optimizer's state in the form of Python's optimizer.state_dict(), and back, so that training begun in one language
// goes on in the other.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, OptimizerStateDict(adam));
//   Save("last.pt", Value::Dict({{"epoch", 3}, {"state_dict", StateDict(*model)}, {"optimizer", optimizer_state}}));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(adam, *checkpoint.Find("optimizer")));
//
// torch::optim::SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS, and classes derived from them. Others are Unimplemented,
// naming the type. What is loaded goes on to the bit as it would have without: in C++ always, between Python and C++
// for SGD, Adagrad, LBFGS and RMSprop. Only Adam, AdamW and centered RMSprop round differently (Python interpolates
// their averages, C++ multiplies and adds): ten steps after the switch parameters differ by 1e-7 of the largest
// (peer/optimizer_peer_test.py).
//
// A state that is to go on under a learning-rate scheduler: see lr_scheduler.h for the order of loading.

#ifndef LOCKSTEP_CHECKPOINT_OPTIMIZER_H_
#define LOCKSTEP_CHECKPOINT_OPTIMIZER_H_

#include <torch/optim/optimizer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// {"state": {0: {"momentum_buffer": tensor}, ...}, "param_groups": [{"lr": ..., ..., "params": [0, 1, ...]}]}, with the
// keys of Python 2.11 in its order. Parameters are numbered in the groups' order. Python's options that C++ does not
// have are there with Python's defaults. Tensors share the optimizer's memory: Save before the next step, or clone.
absl::StatusOr<Value> OptimizerStateDict(const torch::optim::Optimizer& optimizer);

// Restores the groups' options and every parameter's state; a parameter without state in `state_dict` has none
// afterwards. Groups and parameters match by position; their names and the keys that C++ has no place for, such as a
// scheduler's initial_lr, are passed over; so are foreach, fused and capturable, which choose how an update is computed
// and not what it is. Tensors are copied, to their parameter's device and dtype. All or nothing: on an error the
// optimizer is as it was.
//
// As in Python the keys decide what fits, not a type's name. AdamW takes Adam's state and stays AdamW. Adam takes
// AdamW's only where that has decoupled_weight_decay=False (Python's Adam would become AdamW).
//
// LBFGS's line search may take 25 evaluations in C++, as many as max_eval leaves in Python; its very first step has a
// length that Python rounds to float and C++ does not.
//
// InvalidArgument: other groups, numbers of parameters or shapes than the optimizer has; a key missing or of a wrong
// type, also one that the options need (max_exp_avg_sq with amsgrad, say) or, for Adagrad, a parameter's whole state;
// names the key. Unimplemented: an optimizer of another type; maximize=True, differentiable=True or, for Adam,
// decoupled_weight_decay=True, which C++'s optimizers do not have.
absl::Status LoadOptimizerStateDict(torch::optim::Optimizer& optimizer, const Value& state_dict);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIMIZER_H_
