// Adafactor.

#ifndef LOCKSTEP_OPTIM_ADAFACTOR_H_
#define LOCKSTEP_OPTIM_ADAFACTOR_H_

#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct AdafactorOptions : CloneableOptions<AdafactorOptions> {
  using eps_t = std::tuple<std::optional<double>, double>;
  AdafactorOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, beta2_decay) = -0.8;
  // Without the first, the distance of 1 to the next number: see Adafactor.
  TORCH_ARG(eps_t, eps) = {std::nullopt, 1e-3};
  TORCH_ARG(double, d) = 1;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
};

// torch.optim.Adafactor. N. Shazeer, M. Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", ICML
// 2018, https://arxiv.org/abs/1804.04235: the state of a matrix is a row and a column. A step waits for the norms.
// Complex parameters and sparse gradients are not supported.
//
// Without the first `eps`, all parameters of a group take it from one dtype, as in Python: the first parameter's that
// has a gradient. With `foreach`, it is the dtype that Python's grouping of tensors has first. On GPUs the default is the
// loop.
//
//   optim::Adafactor optimizer(net->parameters(), optim::AdafactorOptions(1e-2).weight_decay(0.01));
class Adafactor : public OptimizerOf<AdafactorOptions> {
 public:
  using OptimizerOf::OptimizerOf;

  const char* name() const override { return "Adafactor"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void BeginGroup(const Options& options, const std::vector<at::Tensor>& parameters) override;
  bool StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                 State& state) const override;

 private:
  double epsilon_ = 0;  // the group's first eps
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ADAFACTOR_H_
