// L-BFGS.

#ifndef LOCKSTEP_OPTIM_LBFGS_H_
#define LOCKSTEP_OPTIM_LBFGS_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/lbfgs.h>

#include <utility>
#include <vector>

namespace lockstep::optim {

using LBFGSOptions = torch::optim::LBFGSOptions;

// torch.optim.LBFGS. J. Nocedal, S. Wright, "Numerical Optimization", 2006, algorithms 7.5 and 3.5. It is LibTorch's,
// with its options and state, but rounds each number as Python does, and lets the line search take all evaluations that
// `max_eval` leaves. Parameters are of one device and dtype, which may be complex, and form one group. Gradients must be
// contiguous or sparse. The learning rate is a number. Each rank has its own: all ranks must see the same losses and
// gradients, as the number of evaluations depends on them.
//
// Constructors throw c10::Error, with Python's words, for a negative rate, several groups, or a parameter that occurs
// twice. So does step() without a closure, or if `line_search_fn` is neither unset nor "strong_wolfe".
//
//   optim::LBFGS optimizer(net->parameters(), optim::LBFGSOptions(1).line_search_fn("strong_wolfe"));
//   const at::Tensor loss = optimizer.step([&] {
//     optimizer.zero_grad();
//     const at::Tensor loss = LossOf(net);
//     loss.backward();
//     return loss;
//   });
class LBFGS : public torch::optim::LBFGS {
 public:
  explicit LBFGS(const std::vector<torch::optim::OptimizerParamGroup>& groups, LBFGSOptions defaults = {});
  explicit LBFGS(std::vector<at::Tensor> parameters, LBFGSOptions defaults = {})
      : LBFGS({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  // Takes up to `max_iter` iterations. Returns the first loss.
  at::Tensor step(LossClosure closure) override;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_LBFGS_H_
