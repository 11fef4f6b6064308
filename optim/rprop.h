// Rprop.

#ifndef LOCKSTEP_OPTIM_RPROP_H_
#define LOCKSTEP_OPTIM_RPROP_H_

#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct RpropOptions : CloneableOptions<RpropOptions> {
  using doubles_t = std::tuple<double, double>;
  RpropOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(doubles_t, etas) = {0.5, 1.2};
  TORCH_ARG(doubles_t, step_sizes) = {1e-6, 50};
  TORCH_ARG(bool, capturable) = false;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  bool use_capturable() const override { return capturable_; }
};

// torch.optim.Rprop: steps by the gradients' signs. M. Riedmiller, H. Braun, "A Direct Adaptive Method for Faster
// Backpropagation Learning: The RPROP Algorithm", ICNN 1993. `etas` are the factors of a step's size after the sign
// changed and after it stayed, and `step_sizes` are the bounds. `foreach` has the loop's bits, and no other speed. Complex
// parameters are supported, and sparse gradients are not.
//
//   optim::Rprop optimizer(net->parameters(), optim::RpropOptions(0.01).etas({0.5, 1.2}));
class Rprop : public OptimizerOf<RpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "Rprop"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  bool StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                 State& state) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_RPROP_H_
