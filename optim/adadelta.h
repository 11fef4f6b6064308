// Adadelta.

#ifndef LOCKSTEP_OPTIM_ADADELTA_H_
#define LOCKSTEP_OPTIM_ADADELTA_H_

#include <optional>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct AdadeltaOptions : CloneableOptions<AdadeltaOptions> {
  AdadeltaOptions(double lr = 1) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, rho) = 0.9;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, capturable) = false;
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  bool use_capturable() const override { return capturable_; }
};

// torch.optim.Adadelta. M. Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012,
// https://arxiv.org/abs/1212.5701. Complex parameters are supported, and sparse gradients are not.
//
//   optim::Adadelta optimizer(net->parameters(), optim::AdadeltaOptions().rho(0.95));
class Adadelta : public OptimizerOf<AdadeltaOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "Adadelta"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ADADELTA_H_
