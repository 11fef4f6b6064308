// Stochastic gradient descent.

#ifndef LOCKSTEP_OPTIM_SGD_H_
#define LOCKSTEP_OPTIM_SGD_H_

#include <optional>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct SGDOptions : CloneableOptions<SGDOptions> {
  SGDOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(double, dampening) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(bool, nesterov) = false;
  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(std::optional<bool>, fused);

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  std::optional<bool> use_fused() const override { return fused_; }
};

// torch.optim.SGD: momentum, with Nesterov's variant. The first momentum is the gradient, without dampening. Sparse
// gradients are supported, except with `fused`, and complex parameters.
//
//   optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
class SGD : public OptimizerOf<SGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "SGD"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  void Fused(const Options& options, Batch& batch) const override;
  void CheckSparse(const Options& options) const override;
  bool complex_as_real() const override { return false; }
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_SGD_H_
