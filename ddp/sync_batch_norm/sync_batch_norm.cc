#include "lockstep/ddp/sync_batch_norm/sync_batch_norm.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/sync_batch_norm/internal/normalize.h"
#include "lockstep/ddp/sync_batch_norm/internal/statistics.h"

namespace lockstep::ddp {
namespace {

std::string Where(const comm::ProcessGroup* group) {
  return group ? absl::StrCat("rank ", group->rank(), " of ", group->size(), ": SyncBatchNorm: ") : "SyncBatchNorm: ";
}

// running = (1 - factor) * running + factor * value, in double.
void Average(const at::Tensor& running, const at::Tensor& value, double factor) {
  running.copy_(running.to(at::kDouble).mul_(1 - factor).add_(value, factor));
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, comm::ProcessGroup* process_group)
    : options(options), process_group(process_group) {
  SyncBatchNormImpl::reset();
}

void SyncBatchNormImpl::reset() {
  const int64_t channels = options.num_features();
  const bool affine = options.affine();
  const bool track = options.track_running_stats();
  Register(affine ? at::ones({channels}) : at::Tensor(), affine ? at::zeros({channels}) : at::Tensor(),
           track ? at::zeros({channels}) : at::Tensor(), track ? at::ones({channels}) : at::Tensor(),
           track ? at::zeros({}, at::kLong) : at::Tensor());
  if (affine) {
    weight.set_requires_grad(true);
    bias.set_requires_grad(true);
  }
}

// Parameters keep their requires_grad.
void SyncBatchNormImpl::Register(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& running_mean,
                                 const at::Tensor& running_var, const at::Tensor& num_batches_tracked) {
  const auto requires_grad = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  this->weight = register_parameter("weight", weight, requires_grad(weight));
  this->bias = register_parameter("bias", bias, requires_grad(bias));
  this->running_mean = register_buffer("running_mean", running_mean);
  this->running_var = register_buffer("running_var", running_var);
  this->num_batches_tracked = register_buffer("num_batches_tracked", num_batches_tracked);
}

void SyncBatchNormImpl::reset_running_stats() {
  if (!options.track_running_stats()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

void SyncBatchNormImpl::reset_parameters() {
  const c10::NoGradGuard no_grad;
  reset_running_stats();
  if (!options.affine()) return;
  weight.fill_(1);
  bias.zero_();
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  ThrowIfError(CheckInput(input));
  const bool over_ranks = is_training() && process_group && process_group->size() > 1;
  return over_ranks ? ForwardOverRanks(input) : ForwardOnThisRank(input);
}

absl::Status SyncBatchNormImpl::CheckInput(const at::Tensor& input) const {
  const auto found = [&] { return absl::StrCat("found the shape [", absl::StrJoin(input.sizes(), ", "), "]"); };
  if (input.dim() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(process_group), "expected an input of at least 2 dimensions, ", found()));
  }
  if (input.size(1) != options.num_features() || input.size(1) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(Where(process_group), "expected an input of ",
                                                   options.num_features(), " channels (dimension 1), ", found()));
  }
  return absl::OkStatus();
}

at::Tensor SyncBatchNormImpl::ForwardOverRanks(const at::Tensor& input) {
  const at::Tensor dense = input.contiguous(input.suggest_memory_format());
  const auto synchronize = [&] {
    const c10::NoGradGuard no_grad;
    absl::StatusOr<internal::BatchStatistics> statistics = internal::SynchronizeStatistics(dense, *process_group);
    ThrowIfError(statistics.status());
    if (options.track_running_stats()) {
      const double factor = CountBatch();
      const double count = static_cast<double>(statistics->count);
      Average(running_mean, statistics->mean, factor);
      Average(running_var, statistics->variance * (count / (count - 1)), factor);
    }
    return *std::move(statistics);
  };
  return internal::Normalize(dense, weight, bias, synchronize(), options.eps(), *process_group);
}

at::Tensor SyncBatchNormImpl::ForwardOnThisRank(const at::Tensor& input) {
  const bool track = options.track_running_stats();
  if (is_training() && input.numel() == input.size(1)) {
    ThrowIfError(absl::InvalidArgumentError(
        absl::StrCat(Where(process_group), "in training: expected more than 1 value per channel, found the shape [",
                     absl::StrJoin(input.sizes(), ", "), "]")));
  }
  const double factor = is_training() && track ? CountBatch() : 0;
  return at::batch_norm(input, weight, bias, running_mean, running_var, is_training() || !track, factor, options.eps(),
                        at::globalContext().userEnabledCuDNN());
}

// The weight of this batch in the running statistics.
double SyncBatchNormImpl::CountBatch() {
  num_batches_tracked.add_(1);
  return options.momentum().has_value() ? *options.momentum() : 1 / num_batches_tracked.item<double>();
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::ddp::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum().has_value()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << std::boolalpha << options.affine()
         << ", track_running_stats=" << options.track_running_stats() << ')';
}

NormFactory SyncBatchNormFactory(comm::ProcessGroup* group) {
  return [group](int64_t channels) { return torch::nn::AnyModule(SyncBatchNorm(channels, group)); };
}

}  // namespace lockstep::ddp
