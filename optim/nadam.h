// NAdam.

#ifndef LOCKSTEP_OPTIM_NADAM_H_
#define LOCKSTEP_OPTIM_NADAM_H_

#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct NAdamOptions : CloneableOptions<NAdamOptions> {
  using betas_t = std::tuple<double, double>;
  NAdamOptions(double lr = 2e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, momentum_decay) = 4e-3;
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

// torch.optim.NAdam: Adam with Nesterov's momentum. T. Dozat, "Incorporating Nesterov Momentum into Adam", ICLR Workshop
// 2016. Complex parameters are supported, and sparse gradients are not. As in Python, a loaded state keeps the product
// of the momenta in the parameter's dtype.
//
//   optim::NAdam optimizer(net->parameters(), optim::NAdamOptions(2e-3).decoupled_weight_decay(true).weight_decay(0.1));
class NAdam : public OptimizerOf<NAdamOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "NAdam"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_NADAM_H_
