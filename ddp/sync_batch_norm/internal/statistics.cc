#include "lockstep/ddp/sync_batch_norm/internal/statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// Mean and variance in StatisticsDtype(). The kernel takes half and bfloat16 in float only if it is given running
// statistics in float: it does not change them, and they are not read.
std::tuple<at::Tensor, at::Tensor> MeanAndVariance(const at::Tensor& input) {
  const c10::ScalarType dtype = StatisticsDtype(input.scalar_type());
  if (dtype == input.scalar_type()) return at::batch_norm_update_stats(input, {}, {}, /*momentum=*/0);
  const at::Tensor unused = at::zeros({input.size(1)}, input.options().dtype(dtype));
  return at::batch_norm_update_stats(input, unused, unused.clone(), /*momentum=*/0);
}

absl::Status TooFewValues(const at::Tensor& counts, int64_t total, const at::Tensor& input,
                          const comm::ProcessGroup& group) {
  const at::Tensor host = counts.cpu();
  int owner = 0;
  while (owner + 1 < group.size() && host[owner].item<double>() == 0) ++owner;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", group.rank(), " of ", group.size(),
                   ": SyncBatchNorm in training: expected more than 1 value per channel over all ranks, found ", total,
                   total == 0 ? std::string() : absl::StrCat(", on rank ", owner),
                   "; this rank's input has the shape [", absl::StrJoin(input.sizes(), ", "), "]"));
}

}  // namespace

c10::ScalarType StatisticsDtype(c10::ScalarType dtype) {
  return dtype == c10::kHalf || dtype == c10::kBFloat16 ? c10::kFloat : dtype;
}

at::Tensor LocalStatistics(const at::Tensor& input) {
  const at::TensorOptions options = input.options().dtype(at::kDouble).memory_format(c10::nullopt);
  const int64_t channels = input.size(1);
  if (input.numel() == 0) return at::zeros({2 * channels + 1}, options);
  const int64_t count = input.numel() / channels;
  const auto [mean, variance] = MeanAndVariance(input);
  return at::cat({mean.to(at::kDouble), variance.to(at::kDouble) * count, at::full({1}, count, options)});
}

BatchStatistics CombineStatistics(const at::Tensor& gathered) {
  const int64_t channels = gathered.size(1) / 2;
  const at::Tensor means = gathered.narrow(1, 0, channels);
  const at::Tensor deviations = gathered.narrow(1, channels, channels);
  const at::Tensor counts = gathered.narrow(1, 2 * channels, 1);
  const at::Tensor total = counts.sum();
  BatchStatistics all;
  all.mean = (means * counts).sum(0) / total;
  all.variance = (deviations + counts * (means - all.mean).square()).sum(0) / total;
  all.count = static_cast<int64_t>(total.item<double>());
  return all;
}

absl::StatusOr<BatchStatistics> SynchronizeStatistics(const at::Tensor& input, comm::ProcessGroup& group) {
  const at::Tensor local = LocalStatistics(input);
  const at::Tensor gathered = at::empty({group.size(), local.numel()}, local.options());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(gathered, local));
  BatchStatistics all = CombineStatistics(gathered);
  if (all.count < 2) return TooFewValues(gathered.select(1, local.numel() - 1), all.count, input, group);
  return all;
}

}  // namespace lockstep::ddp::internal
