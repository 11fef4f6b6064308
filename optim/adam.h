// Adam.

#ifndef LOCKSTEP_OPTIM_ADAM_H_
#define LOCKSTEP_OPTIM_ADAM_H_

#include <optional>
#include <tuple>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

// Options of Adam, or of AdamW if kDecoupled.
template <bool kDecoupled>
struct BasicAdamOptions : CloneableOptions<BasicAdamOptions<kDecoupled>> {
  using betas_t = std::tuple<double, double>;
  BasicAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = kDecoupled ? 1e-2 : 0;
  TORCH_ARG(bool, amsgrad) = false;
  TORCH_ARG(bool, maximize) = false;
  TORCH_ARG(std::optional<bool>, foreach);
  TORCH_ARG(bool, capturable) = false;
  TORCH_ARG(std::optional<bool>, fused);
  // AdamW's is true, whatever is set.
  TORCH_ARG(bool, decoupled_weight_decay) = kDecoupled;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
  std::optional<bool> use_foreach() const override { return foreach_; }
  std::optional<bool> use_fused() const override { return fused_; }
  bool use_capturable() const override { return capturable_; }
};

// D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, https://arxiv.org/abs/1412.6980. `amsgrad`
// is the variant of S. Reddi, S. Kale, S. Kumar, ICLR 2018. A learning rate in a tensor excludes `foreach`. On GPUs,
// `capturable` needs `fused`, and then the step can be captured in a CUDA graph. Complex parameters are supported,
// except with `fused`, and sparse gradients are not.
template <bool kDecoupled>
class BasicAdam : public OptimizerOf<BasicAdamOptions<kDecoupled>> {
 public:
  using OptimizerOf<BasicAdamOptions<kDecoupled>>::OptimizerOf;
  using typename Optimizer::Batch;

  const char* name() const override { return kDecoupled ? "AdamW" : "Adam"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void Write(const Options& options, const State& state, double step, bool foreach,
             internal::Program& program) const override;
  void Fused(const Options& options, Batch& batch) const override;
  void CheckSparse(const Options& options) const override;
};

extern template struct BasicAdamOptions<false>;
extern template struct BasicAdamOptions<true>;
extern template class BasicAdam<false>;
extern template class BasicAdam<true>;

// torch.optim.Adam. Its weight decay is added to the gradient, unless `decoupled_weight_decay`.
//
//   optim::Adam optimizer(net->parameters(), optim::AdamOptions(1e-3).betas({0.9, 0.95}));
using AdamOptions = BasicAdamOptions<false>;
using Adam = BasicAdam<false>;

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_ADAM_H_
