// Converts an optimizer's state to and from the form of Python's optimizer.state_dict(), so that a training begun in
// one language can continue in the other.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, OptimizerStateDict(adam));
//   Save("last.pt", Value::Dict({{"epoch", 3}, {"state_dict", StateDict(*model)}, {"optimizer", optimizer_state}}));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(adam, *checkpoint.Find("optimizer")));
//
// Supported are the optimizers of lockstep::optim, which continue Python's bit-identically in the mode that was saved.
// Also torch::optim::SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS, and classes derived from them. These continue a state
// of C++ bit-identically. torch::optim::Adam, AdamW and centered RMSprop round otherwise than Python, so take
// lockstep::optim's to change the language. Other types are Unimplemented, and the error names the type.
//
// With a learning-rate scheduler, see lr_scheduler.h for the order of loading.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_OPTIMIZER_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_OPTIMIZER_H_

#include <torch/optim/optimizer.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// {"state": {0: {"momentum_buffer": tensor}, ...}, "param_groups": [{"lr": ..., ..., "params": [0, 1, ...]}]}, with the
// keys of PyTorch 2.11 in its order. Parameters are numbered in the order of the groups. Python's options that C++ lacks
// get Python's defaults. Tensors share the optimizer's memory: save or clone them before the next step.
absl::StatusOr<Value> OptimizerStateDict(const torch::optim::Optimizer& optimizer);

// Restores the groups' options and every parameter's state. A parameter without state in `state_dict` has none
// afterwards. Groups and parameters match by position. Their names, and keys that C++ cannot store, such as a
// scheduler's initial_lr, are ignored. The optimizers of lockstep::optim take over foreach, fused and capturable;
// LibTorch's, which have no such modes, ignore them. Tensors are copied to the device and dtype of their parameter. On an error the optimizer is
// unchanged.
//
// With copy=false, a tensor that has its parameter's device and dtype is not copied, as in Python: it becomes the
// optimizer's own. Nobody may use it for anything else afterwards.
//
// As in Python, the keys decide whether a state fits, not the name of the type. AdamW accepts Adam's state and stays
// AdamW. Adam accepts AdamW's state only with decoupled_weight_decay=False (Python's Adam would become AdamW).
//
// The line search of torch::optim::LBFGS may take 25 evaluations, as many as max_eval leaves in Python. Python rounds
// the length of its very first step to float, and that class does not. optim::LBFGS does as Python.
//
// InvalidArgument, naming the key: groups, numbers of parameters or shapes differ from the optimizer's; a key is
// missing or has a wrong type, including keys that the options need (such as max_exp_avg_sq with amsgrad); or, for
// Adagrad, a parameter has no state. Unimplemented: an optimizer of another type, differentiable=True, or, for LibTorch's
// optimizers, maximize=True or Adam's decoupled_weight_decay=True.
absl::Status LoadOptimizerStateDict(torch::optim::Optimizer& optimizer, const Value& state_dict, bool copy = true);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_OPTIMIZER_H_
