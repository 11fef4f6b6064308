// Hooks for the tensors that autograd saves: torch.autograd.graph.saved_tensors_hooks for C++.

#ifndef LOCKSTEP_MODELS_RECOMPUTE_INTERNAL_SAVED_TENSOR_HOOKS_H_
#define LOCKSTEP_MODELS_RECOMPUTE_INTERNAL_SAVED_TENSOR_HOOKS_H_

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <functional>
#include <memory>

namespace lockstep::models::internal {

// While a SavedTensorHooks exists, each tensor that autograd saves on this thread gets hooks from `make`, in place of
// the hooks of outer ones. It must end on the thread on which it was created, in reverse order.
//
// LibTorch asks the default engine for hooks, and the engine of plain C++ has none. So the first SavedTensorHooks puts
// an engine in front of the default one, for the rest of the process. That engine adds the hooks, and leaves everything
// else to the engine behind it. So threads, running backward passes and Python's own hooks are as before.
class SavedTensorHooks {
 public:
  using Make = std::function<std::unique_ptr<torch::autograd::SavedVariableHooks>()>;

  explicit SavedTensorHooks(Make make);
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

 private:
  const Make make_;
  const Make* const outer_;
};

}  // namespace lockstep::models::internal

#endif  // LOCKSTEP_MODELS_RECOMPUTE_INTERNAL_SAVED_TENSOR_HOOKS_H_
