// LibTorch's optimizers, each described by its options and its parameters' state, with the names and the order of
// Python 2.11's optimizer.state_dict(). To support another optimizer, add a description. Lockstep's optimizers, which
// describe themselves, have one description for all.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_OPTIMIZER_KIND_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_OPTIMIZER_KIND_H_

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/optim/fields.h"

namespace lockstep::checkpoint::optim {

// The parameter of a state.
struct StateOwner {
  const at::Tensor& parameter;
  const std::vector<at::Tensor>& group;  // `parameter`'s, whole
  const torch::optim::OptimizerOptions& options;
  const torch::optim::Optimizer& optimizer;
  bool copy = true;  // tensors that are read, even if they have the parameter's device and dtype
};

struct OptimizerKind {
  const char* name;  // torch::optim::SGD
  // True if a parameter has state from the construction on, rather than from its first step.
  bool state_from_the_start;
  // Returns whether `optimizer` is one, or of a class derived from it. The others require such an optimizer's parts.
  bool (*is)(const torch::optim::Optimizer& optimizer);
  void (*describe_options)(Fields&, torch::optim::OptimizerOptions&);
  void (*assign_options)(torch::optim::OptimizerOptions& to, const torch::optim::OptimizerOptions& from);
  std::unique_ptr<torch::optim::OptimizerParamState> (*new_state)(const StateOwner&);
  // Tensors are written as they are; read ones get the parameter's device and dtype.
  void (*describe_state)(Fields&, torch::optim::OptimizerParamState&, const StateOwner&);
};

// nullopt for an optimizer of another type.
std::optional<OptimizerKind> FindOptimizerKind(const torch::optim::Optimizer& optimizer);
// The kind of a lockstep::optim::Optimizer. nullopt for an optimizer of another type.
std::optional<OptimizerKind> LockstepOptimizerKind(const torch::optim::Optimizer& optimizer);
// "torch::optim::SGD, torch::optim::Adam, ..."
std::string OptimizerKindNames();

// Returns `value` with the owner's device and dtype. A tensor of one element fits another one. InvalidArgument: it is
// not a tensor, or has another shape.
absl::StatusOr<at::Tensor> TensorFor(const StateOwner& owner, const Value& value, at::IntArrayRef sizes);

}  // namespace lockstep::checkpoint::optim

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_OPTIMIZER_KIND_H_
