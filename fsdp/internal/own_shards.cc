#include "lockstep/fsdp/internal/own_shards.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/internal/parameter_key.h"

namespace lockstep::fsdp::internal {
namespace {

class NoValues final : public Pageable {
 public:
  explicit NoValues(std::string message) : message_(std::move(message)) {}
  void BeginUse() override { ThrowIfError(absl::FailedPreconditionError(message_)); }
  void EndUse() override {}

 private:
  const std::string message_;
};

}  // namespace

void OwnShards::Add(const at::Tensor& shard, const std::string& name, size_t unit, const Piece& piece) {
  tensors_.push_back(shard);
  names_.push_back(name);
  places_.push_back({unit, piece});
}

absl::Status OwnShards::CheckParametersOf(const torch::optim::Optimizer& optimizer) const {
  std::set<const at::TensorImpl*> own;
  for (const at::Tensor& shard : tensors_) own.insert(shard.unsafeGetTensorImpl());
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (own.count(parameter.unsafeGetTensorImpl()) != 0) continue;
      return absl::InvalidArgumentError(
          "the optimizer has a parameter that is not one of shards(); make it of shards()");
    }
  }
  return absl::OkStatus();
}

void OwnShards::PromiseGradients(const std::string& who) {
  if (promises_.empty()) {
    const auto values = std::make_shared<NoValues>(
        absl::StrCat(who,
                     ": a shard has its gradient in Step(optimizer), or after PrepareGradients(): call net.Step("
                     "optimizer) in place of optimizer.step()"));
    for (const at::Tensor& shard : tensors_) {
      promises_.push_back(at::empty({0}, shard.options().requires_grad(false)));
      MakePageable(promises_.back(), values);
      promises_.back().unsafeGetTensorImpl()->set_sizes_contiguous(shard.sizes());
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].grad().defined()) tensors_[i].mutable_grad() = promises_[i];
  }
}

void OwnShards::SetGradients(const ShardReducer& reducer) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor gradient = reducer.GradientOf(places_[i].unit, places_[i].piece);
    tensors_[i].mutable_grad() = gradient.defined() ? gradient.view(tensors_[i].sizes()) : gradient;
  }
}

void OwnShards::ResetGradients() {
  for (const at::Tensor& shard : tensors_) shard.mutable_grad().reset();
}

}  // namespace lockstep::fsdp::internal
