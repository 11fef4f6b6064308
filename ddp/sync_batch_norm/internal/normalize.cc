#include "lockstep/ddp/sync_batch_norm/internal/normalize.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::ddp::internal {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The arguments of backward that are not tensors.
struct Saved : torch::CustomClassHolder {
  Saved(comm::ProcessGroup* group, int64_t count, double eps) : group(group), count(count), eps(eps) {}
  comm::ProcessGroup* group;
  int64_t count;
  double eps;
};

// Two numbers a channel, of dtype StatisticsDtype(): the sums of the output's gradient, and of its product with the
// normalised input.
struct GradientSums {
  at::Tensor of_gradient;
  at::Tensor of_product;
};

at::Tensor ToDtype(const at::Tensor& tensor, c10::ScalarType dtype) {
  return tensor.defined() ? tensor.to(dtype) : tensor;
}

// [C] as [1, C, 1, ...], to be broadcast with `input`.
at::Tensor AlongChannels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = values.numel();
  return values.to(StatisticsDtype(input.scalar_type())).view(shape);
}

GradientSums LocalSums(const at::Tensor& gradient, const at::Tensor& input, const BatchStatistics& statistics,
                       double eps) {
  const c10::ScalarType dtype = StatisticsDtype(input.scalar_type());
  if (input.numel() == 0) {
    const at::Tensor zeros = at::zeros({input.size(1)}, statistics.mean.options().dtype(dtype));
    return {zeros, zeros};
  }
  // With given statistics and no weight these sums are the gradients of bias and weight.
  const at::Tensor mean = statistics.mean.to(dtype);
  const at::Tensor variance = statistics.variance.to(dtype);
  const auto [none, of_product, of_gradient] = at::native_batch_norm_backward(
      gradient, input, /*weight=*/{}, mean, variance, {}, {}, /*train=*/false, eps, {false, true, true});
  return {of_gradient, of_product};
}

// All ranks' sums, divided by the number of values.
GradientSums MeanOverRanks(const GradientSums& local, const Saved& saved) {
  const at::Tensor both = at::cat({local.of_gradient, local.of_product}).to(at::kDouble);
  ThrowIfError(Annotate(saved.group->AllReduce(both), "SyncBatchNorm backward"));
  const std::vector<at::Tensor> means = both.div_(saved.count).chunk(2);
  return {means[0], means[1]};
}

// weight * invstd * (dy - mean(dy) - xhat * mean(dy * xhat)), starting from (x - mean), in which no large numbers are
// left.
at::Tensor InputGradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight,
                         const BatchStatistics& statistics, const GradientSums& means, double eps) {
  if (input.numel() == 0) return at::zeros_like(input);
  const at::Tensor invstd = (statistics.variance + eps).rsqrt();
  const at::Tensor scale = weight.defined() ? invstd * weight.to(at::kDouble) : invstd;
  at::Tensor result = at::sub(input, AlongChannels(statistics.mean, input));
  result.mul_(AlongChannels(-scale * invstd * means.of_product, input));
  result.sub_(AlongChannels(scale * means.of_gradient, input));
  result.addcmul_(gradient.to(result.scalar_type()), AlongChannels(scale, input));
  return result.to(input.scalar_type());
}

class NormalizeFunction : public torch::autograd::Function<NormalizeFunction> {
 public:
  // Function accepts undefined tensors only as optionals. They are then not inputs of the node.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const BatchStatistics& statistics, double eps,
                            comm::ProcessGroup* group) {
    context->save_for_backward({input, *weight, statistics.mean, statistics.variance});
    context->saved_data["saved"] = c10::IValue::make_capsule(c10::make_intrusive<Saved>(group, statistics.count, eps));
    if (input.numel() == 0) return at::empty_like(input);
    const c10::ScalarType dtype = StatisticsDtype(input.scalar_type());
    return std::get<0>(at::native_batch_norm(input, ToDtype(*weight, dtype), ToDtype(*bias, dtype),
                                             statistics.mean.to(dtype), statistics.variance.to(dtype),
                                             /*training=*/false, /*momentum=*/0, eps));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["saved"].toCapsule();
    const Saved& saved = static_cast<const Saved&>(*capsule);
    if (c10::GradMode::is_enabled()) ThrowIfError(NotTwice(*saved.group));
    const variable_list tensors = context->get_saved_variables();
    const at::Tensor& input = tensors[0];
    const at::Tensor& weight = tensors[1];
    const BatchStatistics statistics{tensors[2], tensors[3], saved.count};
    const at::Tensor gradient = gradients[0].contiguous(input.suggest_memory_format());
    const GradientSums local = LocalSums(gradient, input, statistics, saved.eps);
    variable_list results(6);
    if (context->needs_input_grad(0)) {
      const GradientSums means = MeanOverRanks(local, saved);
      results[0] = InputGradient(gradient, input, weight, statistics, means, saved.eps);
    }
    if (!weight.defined()) return results;
    if (context->needs_input_grad(1)) results[1] = local.of_product.to(weight.scalar_type());
    if (context->needs_input_grad(2)) results[2] = local.of_gradient.to(weight.scalar_type());
    return results;
  }

 private:
  static absl::Status NotTwice(const comm::ProcessGroup& group) {
    return absl::UnimplementedError(absl::StrCat("rank ", group.rank(), " of ", group.size(),
                                                 ": SyncBatchNorm's backward cannot be differentiated (create_graph)"));
  }
};

}  // namespace

at::Tensor Normalize(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                     const BatchStatistics& statistics, double eps, comm::ProcessGroup& group) {
  return NormalizeFunction::apply(input, std::optional<at::Tensor>(weight), std::optional<at::Tensor>(bias), statistics,
                                  eps, &group);
}

}  // namespace lockstep::ddp::internal
