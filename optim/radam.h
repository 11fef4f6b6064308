// RAdam.

#ifndef LOCKSTEP_OPTIM_RADAM_H_
#define LOCKSTEP_OPTIM_RADAM_H_

#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct RAdamOptions : CloneableOptions<RAdamOptions> {
  using betas_t = std::tuple<double, double>;
  RAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, decoupled_weight_decay) = false;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(bool, capturable) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  bool use_capturable() const override { return capturable_; }
};

// torch.optim.RAdam: Adam that begins without its adaptive rate. L. Liu et al., "On the Variance of the Adaptive Learning
// Rate and Beyond", ICLR 2020, https://arxiv.org/abs/1908.03265. As Python's, `foreach` rounds otherwise than the loop.
// Complex parameters are supported, and sparse gradients are not.
//
//   optim::RAdam optimizer(net->parameters(), optim::RAdamOptions(1e-3).betas({0.9, 0.99}));
class RAdam : public OptimizerOf<RAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "RAdam"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_RADAM_H_
