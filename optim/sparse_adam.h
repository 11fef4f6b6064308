// Adam for sparse gradients.

#ifndef LOCKSTEP_OPTIM_SPARSE_ADAM_H_
#define LOCKSTEP_OPTIM_SPARSE_ADAM_H_

#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {

struct SparseAdamOptions : CloneableOptions<SparseAdamOptions> {
  using betas_t = std::tuple<double, double>;
  SparseAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT(google-explicit-constructor): as in LibTorch
  TORCH_ARG(Number, lr);
  TORCH_ARG(betas_t, betas) = {0.9, 0.999};
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(bool, maximize) = false;

 public:
  void Visit(OptionVisitor& visitor) override;
  void Check() const override;
};

// torch.optim.SparseAdam: Adam that moves only the elements that the gradient has, and their averages. Gradients must be
// sparse, as torch::nn::Embedding with sparse(true) has them, and parameters dense and real.
//
//   optim::SparseAdam optimizer(embedding->parameters(), optim::SparseAdamOptions(1e-3));
class SparseAdam : public OptimizerOf<SparseAdamOptions> {
 public:
  explicit SparseAdam(const std::vector<torch::optim::OptimizerParamGroup>& groups, SparseAdamOptions defaults = {});
  explicit SparseAdam(std::vector<at::Tensor> parameters, SparseAdamOptions defaults = {})
      : SparseAdam({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

  const char* name() const override { return "SparseAdam"; }
  const std::vector<const char*>& state_keys() const override;

 protected:
  void InitState(const at::Tensor& parameter, const Options& options, State& state) const override;
  void BeginGroup(const Options& options, const std::vector<at::Tensor>& parameters) override;
  void CheckSparse(const Options& options) const override;
  bool StepSparse(const Options& options, double step, const at::Tensor& parameter, const at::Tensor& gradient,
                  State& state) const override;
};

}  // namespace lockstep::optim

#endif  // LOCKSTEP_OPTIM_SPARSE_ADAM_H_
