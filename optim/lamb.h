// LAMB.

#ifndef LOCKSTEP_OPTIM_LAMB_H_
#define LOCKSTEP_OPTIM_LAMB_H_

#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct LAMBOptions : CloneableOptions<LAMBOptions> {
  using betas_t = std::tuple<double, double>;
  LAMBOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
};

// Adam whose step for each parameter has the length of the parameter, times the rate. Y. You et al., "Large Batch
// Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020, https://arxiv.org/abs/1904.00962, with the
// identity as the scaling function. Python has none. A step waits for the norms. Complex parameters and sparse gradients
// are not supported.
//
//   optim::LAMB optimizer(net->parameters(), optim::LAMBOptions(2e-3).weight_decay(0.01));
class LAMB : public OptimizerOf<LAMBOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "LAMB"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  bool StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                 State& state) const override;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_LAMB_H_
