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

  // Returns whether the backward that runs in this thread accumulates gradients of the parameters, unlike
  // torch::autograd::grad() and a backward with other inputs.
  bool AccumulatedInBackward() const;

  // The parameters whose accumulators are not in the graph of the backward that runs in this thread, in ascending
  // order.
  std::vector<int> NotInBackward() const;

  // All hooks on the parameter's accumulator, in the order in which they run.
  const std::vector<std::unique_ptr<torch::autograd::FunctionPostHook>>& On(int index) const;

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

// Calls `callback` in each backward through `output`, before autograd goes on behind it. So it is called in the
// backward that the loss begins, and not in one that is nested in that one. A tensor without a grad_fn gets no call.
void CallInBackwardThrough(const at::Tensor& output, std::function<void()> callback);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_AUTOGRAD_HOOKS_H_
