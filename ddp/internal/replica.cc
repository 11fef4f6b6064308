#include "lockstep/ddp/internal/replica.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/broadcast_coalesced.h"

namespace lockstep::ddp::internal {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kDefaultBucketMiB = 25;

ReducerOptions ToReducerOptions(const Options& options) {
  ReducerOptions reducer_options;
  reducer_options.bucket_bytes = static_cast<int64_t>(options.bucket_cap_mb.value_or(kDefaultBucketMiB) * kMiB);
  reducer_options.first_bucket_bytes =
      options.bucket_cap_mb ? reducer_options.bucket_bytes : static_cast<int64_t>(kMiB);
  reducer_options.gradient_as_bucket_view = options.gradient_as_bucket_view;
  return reducer_options;
}

absl::Status CheckOptions(const Options& options, bool anything_to_train) {
  if (options.bucket_cap_mb && !(*options.bucket_cap_mb > 0 && std::isfinite(*options.bucket_cap_mb))) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket_cap_mb is ", *options.bucket_cap_mb, ", expected a positive number"));
  }
  if (!anything_to_train)
    return absl::InvalidArgumentError("no parameter of the module requires gradients: there is nothing to average");
  return absl::OkStatus();
}

}  // namespace

Replica::Replica(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options)
    : group_(group), options_(options) {
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    named_parameters_.push_back({item.key(), item.value()});
    parameters_.push_back(item.value());
  }
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined() && seen.insert(buffer.unsafeGetTensorImpl()).second) buffers_.push_back(buffer);
  }
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const torch::nn::Module& module, comm::ProcessGroup* group,
                                                         const Options& options) {
  const std::string who = absl::StrCat("rank ", group->rank(), ": ddp::Wrap");
  std::unique_ptr<Replica> replica(new Replica(module, group, options));
  std::vector<NamedTensor> trained;
  for (const NamedTensor& parameter : replica->named_parameters_) {
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  }
  // The ranks compare first, so that a rank whose own check fails does not leave the others waiting.
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckSameParameters(*group, replica->named_parameters_), who));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckOptions(options, !trained.empty()), who));
  if (options.init_sync) LOCKSTEP_RETURN_IF_ERROR(Annotate(replica->Synchronize(), who));
  const absl::Status built = TorchStatus(who, [&] {
    replica->reducer_ = std::make_unique<Reducer>(std::move(trained), group, ToReducerOptions(options));
  });
  LOCKSTEP_RETURN_IF_ERROR(built);
  return replica;
}

absl::Status Replica::Synchronize() {
  std::vector<at::Tensor> state = parameters_;
  state.insert(state.end(), buffers_.begin(), buffers_.end());
  return BroadcastCoalesced(*group_, state);
}

void Replica::BeforeForward() {
  if (c10::GradMode::is_enabled()) reducer_->PrepareForward();
  if (options_.broadcast_buffers && !buffers_.empty()) ThrowIfError(BroadcastCoalesced(*group_, buffers_));
}

}  // namespace lockstep::ddp::internal
