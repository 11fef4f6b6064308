#include "lockstep/ddp/internal/partial_gradients.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/kernels.h"

namespace lockstep::ddp::internal {
namespace {

comm::TreeSum MakeSum(comm::ProcessGroup* group, const std::vector<int>& bounds) {
  absl::StatusOr<comm::TreeSum> sum = comm::TreeSum::Create(group, bounds);
  ThrowIfError(sum.status());
  return *std::move(sum);
}

}  // namespace

PartialGradients::PartialGradients(comm::ProcessGroup* group, int virtual_ranks)
    : group_(group),
      virtual_ranks_(virtual_ranks),
      tree_(virtual_ranks),
      bounds_(comm::EvenBounds(virtual_ranks, group->size())),
      begin_(bounds_[group->rank()]),
      end_(bounds_[group->rank() + 1]),
      sum_(MakeSum(group, bounds_)) {}

void PartialGradients::Build(const GradientBuckets& buckets) {
  partials_.clear();
  partials_.resize(buckets.size());
}

PartialGradients::Partial& PartialGradients::PartialOf(const Bucket& bucket, size_t depth) {
  std::vector<Partial>& partials = partials_[bucket.index];
  while (partials.size() <= depth) {
    Partial partial;
    const at::Tensor& buffer = bucket.buffer;
    if (buffer.is_cpu()) {
      auto allocated = group_->AllocateShared(buffer.sizes(), buffer.scalar_type());
      ThrowIfError(allocated.status());
      partial.buffer = *std::move(allocated);
    } else {
      partial.buffer = at::empty_like(buffer);
    }
    for (const at::Tensor& slot : bucket.for_hook.gradients) {
      const int64_t offset = slot.storage_offset() - buffer.storage_offset() + partial.buffer.storage_offset();
      partial.slots.push_back(partial.buffer.as_strided(slot.sizes(), slot.strides(), offset));
    }
    partials.push_back(std::move(partial));
  }
  return partials[depth];
}

void PartialGradients::TakeLeaf(const std::vector<ReducedParameter>& parameters, const GradientBuckets& buckets) {
  const c10::NoGradGuard no_grad;
  const size_t depth = stack_.size();
  const int leaf = stack_.empty() ? begin_ : stack_.back().end;
  const int adds = tree_.Push(stack_, {leaf, leaf + 1});
  for (int i = 0; i < buckets.size(); ++i) {
    const Bucket& bucket = buckets[i];
    // The first addition needs no copy of the leaf.
    const Partial& to = PartialOf(bucket, adds == 0 ? depth : depth - 1);
    for (size_t k = 0; k < bucket.parameters.size(); ++k) {
      const at::Tensor& gradient = parameters[bucket.parameters[k]].tensor.grad();
      if (adds > 0) {
        // Also where there is none: -0 + 0 is 0.
        to.slots[k].add_(gradient.defined() ? gradient : at::zeros_like(to.slots[k]));
      } else if (gradient.defined()) {
        Copy(to.slots[k], gradient);
      } else {
        to.slots[k].zero_();
      }
    }
    for (int add = 1; add < adds; ++add) {
      PartialOf(bucket, depth - 1 - add).buffer.add_(PartialOf(bucket, depth - add).buffer);
    }
  }
}

comm::PendingTreeSum PartialGradients::Start(const Bucket& bucket) {
  const c10::NoGradGuard no_grad;
  std::vector<comm::PartialSum> stack = stack_;  // each bucket is the last leaf's
  size_t depth = stack.size();
  for (int adds = tree_.Push(stack, {end_ - 1, end_}); adds > 0; --adds) {
    bucket.buffer.add_(PartialOf(bucket, --depth).buffer);
  }
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < depth; ++i) sums.push_back(PartialOf(bucket, i).buffer);
  sums.push_back(bucket.buffer);
  return sum_.Start(bucket.buffer, std::move(sums), virtual_ranks_);
}

}  // namespace lockstep::ddp::internal
