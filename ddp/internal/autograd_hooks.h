// The reducer's hooks in autograd: for gradients that arrive, and for the begin and end of a backward.

#ifndef LOCKSTEP_DDP_INTERNAL_AUTOGRAD_HOOKS_H_
#define LOCKSTEP_DDP_INTERNAL_AUTOGRAD_HOOKS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/libtorch_compatibility.h"

namespace torch::autograd {
class FunctionPostHook;
}  // namespace torch::autograd

namespace lockstep::ddp::internal {

// Hooks on the gradient accumulators of parameters, which run when the parameter's gradient has been accumulated. The
// accumulators are kept alive, since autograd would otherwise make new ones without hooks.
class AccumulatorHooks {
 public:
  // Makes the hook of the `index`th parameter.
  using MakeHook = std::function<std::unique_ptr<torch::autograd::FunctionPostHook>(int index)>;

  AccumulatorHooks(std::vector<at::Tensor> parameters, MakeHook make_hook);
  ~AccumulatorHooks();
  AccumulatorHooks(const AccumulatorHooks&) = delete;
  AccumulatorHooks& operator=(const AccumulatorHooks&) = delete;

  // Moves the hooks to the parameters' present accumulators, for parameters that change their data in each step (see
  // MixedPrecision).
  void Reinstall();

  // The first parameter whose accumulator was replaced, as by module->to(dtype). -1 if all still have their hooks, or
  // if Reinstall() is in use.
  int Replaced() const;

  // The parameters whose accumulators are not in the graph of the backward that runs in this thread, in ascending
  // order.
  std::vector<int> NotInBackward() const;

 private:
  void Install();
  void Remove();

  const std::vector<at::Tensor> parameters_;
  const MakeHook make_hook_;
  std::vector<AutogradNodePtr> accumulators_;
  std::vector<uintptr_t> keys_;  // of the hooks
  bool reinstalled_ = false;
};

// Calls `callback` when the backward that runs in this thread has succeeded.
void CallAtEndOfBackward(std::function<void()> callback);

// Returns the same tensors, each behind a separate autograd node that calls `on_backward` before its gradient passes.
// So it is called in the backward that the loss begins, and before any backward that is nested in that one. As each
// tensor has its own node, a tensor that the loss does not depend on stays out of backward. Tensors without a grad_fn
// are returned as they are.
std::vector<at::Tensor> PassThroughSink(const std::vector<at::Tensor>& outputs,
                                        const std::function<void()>& on_backward);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_AUTOGRAD_HOOKS_H_
