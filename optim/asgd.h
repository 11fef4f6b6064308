// ASGD.

#ifndef LOCKSTEP_OPTIM_ASGD_H_
#define LOCKSTEP_OPTIM_ASGD_H_

#include <optional>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct ASGDOptions : CloneableOptions<ASGDOptions> {
  ASGDOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, lambd) = 1e-4;
  TORCH_ARG(double, alpha) = 0.75;
  TORCH_ARG(double, t0) = 1e6;
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

// torch.optim.ASGD: averaged SGD. B. Polyak, A. Juditsky, "Acceleration of Stochastic Approximation by Averaging", SIAM
// Journal on Control and Optimization 30, 1992. The state's "ax" is the average. As Python's, `foreach` rounds otherwise
// than the loop. Complex parameters are supported, and sparse gradients are not. As in Python, a loaded state keeps its
// rates "eta" and "mu" in the parameter's dtype.
//
//   optim::ASGD optimizer(net->parameters(), optim::ASGDOptions(0.01).t0(1000));
class ASGD : public OptimizerOf<ASGDOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "ASGD"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  void Finish(const Options& options, const State& state, bool foreach) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ASGD_H_
