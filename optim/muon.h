// Muon.

#ifndef LOCKSTEP_OPTIM_MUON_H_
#define LOCKSTEP_OPTIM_MUON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct MuonOptions : CloneableOptions<MuonOptions> {
  using triple_t = std::tuple<double, double, double>;
  MuonOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(double, weight_decay) = 0.1;
  TORCH_ARG(double, momentum) = 0.95;
  TORCH_ARG(bool, nesterov) = true;
  TORCH_ARG(triple_t, ns_coefficients) = {3.4445, -4.775, 2.0315};
  TORCH_ARG(double, eps) = 1e-7;
  TORCH_ARG(int64_t, ns_steps) = 5;
  TORCH_ARG(std::optional<std::string>, adjust_lr_fn);

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
};

// torch.optim.Muon: momentum, made orthogonal by Newton-Schulz iterations in bfloat16. K. Jordan et al., "Muon: An
// optimizer for hidden layers in neural networks", 2024, https://kellerjordan.github.io/posts/muon. For matrices only:
// give all other parameters to AdamW. `adjust_lr_fn` is "original" or "match_rms_adamw", the rule by J. Liu et al., "Muon
// is Scalable for LLM Training", 2025, https://arxiv.org/abs/2502.16982. Complex parameters and sparse gradients are not
// supported. As in Python, a step without `nesterov` leaves a bfloat16 momentum with the norm 1.
//
//   optim::Muon optimizer(matrices, optim::MuonOptions(0.02).weight_decay(0.01).adjust_lr_fn("match_rms_adamw"));
class Muon : public OptimizerOf<MuonOptions> {
 public:
  explicit Muon(const std::vector<torch::optim::OptimizerParamGroup>& groups, MuonOptions defaults = {});
  explicit Muon(std::vector<at::Tensor> parameters, MuonOptions defaults = {})
      : Muon({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  const char* name() const override { return "Muon"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  bool StepDense(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                 State& state) const override;
  bool foreach_takes_tensor_rate() const override { return true; }
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_MUON_H_
