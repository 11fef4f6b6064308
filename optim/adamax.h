// Adamax.

#ifndef LOCKSTEP_OPTIM_ADAMAX_H_
#define LOCKSTEP_OPTIM_ADAMAX_H_

#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct AdamaxOptions : CloneableOptions<AdamaxOptions> {
  using betas_t = std::tuple<double, double>;
  AdamaxOptions(double lr = 2e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(bool, capturable) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  bool use_capturable() const override { return capturable_; }
};

// torch.optim.Adamax: Adam with the infinity norm, D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR
// 2015, https://arxiv.org/abs/1412.6980, section 7. Complex parameters are supported, and sparse gradients are not.
//
//   optim::Adamax optimizer(net->parameters(), optim::AdamaxOptions(2e-3).betas({0.9, 0.99}));
class Adamax : public OptimizerOf<AdamaxOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "Adamax"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ADAMAX_H_
