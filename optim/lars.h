// LARS.

#ifndef LOCKSTEP_OPTIM_LARS_H_
#define LOCKSTEP_OPTIM_LARS_H_

#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct LARSOptions : CloneableOptions<LARSOptions> {
  LARSOptions(double lr = 1) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, momentum) = 0.9;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, trust_coefficient) = 1e-3;
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
};

// SGD with momentum whose rate for each parameter is in proportion to the ratio of the norms of parameter and gradient.
// Y. You, I. Gitman, B. Ginsburg, "Large Batch Training of Convolutional Networks", 2017,
// https://arxiv.org/abs/1708.03888. Python has none. A step waits for the norms. A parameter or gradient of zeros has the
// rate itself. Complex parameters and sparse gradients are not supported.
//
//   optim::LARS optimizer(net->parameters(), optim::LARSOptions(10).momentum(0.9).weight_decay(1e-4));
class LARS : public OptimizerOf<LARSOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "LARS"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  bool StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                 State& state) const override;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_LARS_H_
