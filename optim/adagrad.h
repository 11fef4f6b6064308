// Adagrad.

#ifndef LOCKSTEP_OPTIM_ADAGRAD_H_
#define LOCKSTEP_OPTIM_ADAGRAD_H_

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct AdagradOptions : CloneableOptions<AdagradOptions> {
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, lr_decay) = 0;
  TORCH_ARG(double, weight_decay) = 0;
  TORCH_ARG(double, initial_accumulator_value) = 0;
  TORCH_ARG(double, eps) = 1e-10;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(std::optional<bool>, fused);

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  std::optional<bool> use_fused() const override { return fused_; }
};

// torch.optim.Adagrad. J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
// Optimization", JMLR 12, 2011. Parameters have state from the construction on. `fused` is for CPUs. Sparse gradients,
// without weight decay, and complex parameters are supported, except with `fused`.
//
//   optim::Adagrad optimizer(net->parameters(), optim::AdagradOptions(0.01).lr_decay(1e-4));
class Adagrad : public OptimizerOf<AdagradOptions> {
 public:
  explicit Adagrad(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdagradOptions defaults = {});
  explicit Adagrad(std::vector<at::Tensor> parameters, AdagradOptions defaults = {})
      : Adagrad({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  const char* name() const override { return "Adagrad"; }
  const std::vector<const char*>& state_keys() const override;
  bool state_from_the_start() const override { return true; }

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  void Fused(const Options& options, Batch& batch) const override;
  void CheckSparse(const Options& options) const override;
  bool StepSparse(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                  State& state) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ADAGRAD_H_
