// RMSprop.

#ifndef LOCKSTEP_OPTIM_RMSPROP_H_
#define LOCKSTEP_OPTIM_RMSPROP_H_

#include <optional>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct RMSpropOptions : CloneableOptions<RMSpropOptions> {
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, alpha) = 0.99;
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, momentum) = 0;
  TORCH_ARG(bool, centered) = false;
  TORCH_ARG(bool, capturable) = false;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  bool use_capturable() const override { return capturable_; }
};

// torch.optim.RMSprop: T. Tieleman, G. Hinton, "Lecture 6.5", 2012, and its centered version, A. Graves, "Generating
// Sequences With Recurrent Neural Networks", 2013, https://arxiv.org/abs/1308.0850. `eps` is added to the square root.
// Complex parameters are supported, and sparse gradients are not.
//
//   optim::RMSprop optimizer(net->parameters(), optim::RMSpropOptions(0.01).momentum(0.9).centered(true));
class RMSprop : public OptimizerOf<RMSpropOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "RMSprop"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_RMSPROP_H_
