#include "lockstep/ddp/internal/partial_gradients.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/kernels.h"
#include "lockstep/ddp/internal/sparse_all_reduce.h"

namespace lockstep::ddp::internal {
namespace {

comm::TreeSum MakeSum(comm::ProcessGroup* group, const std::vector<int>& bounds) {
  absl::StatusOr<comm::TreeSum> sum = comm::TreeSum::Create(group, bounds);
  ThrowIfError(sum.status());
  return *std::move(sum);
}

// The sum of two nodes of the tree, in the memory of one of them. An undefined tensor is zero.
at::Tensor Added(const at::Tensor& left, const at::Tensor& right) {
  if (right.defined()) return left.defined() ? right.add_(left) : right.add_(0);
  return left.defined() ? left.add_(0) : left;  // not without effect: -0 + 0 is 0
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

void PartialGradients::SetAverage(const HookAverage& average) {
  average_ = average;
  for (std::vector<Partial>& partials : partials_) partials.clear();
  for (at::Tensor& cast : cast_) cast = at::Tensor();
}

void PartialGradients::Build(const GradientBuckets& buckets) {
  partials_.clear();
  partials_.resize(buckets.size());
  cast_.assign(buckets.size(), at::Tensor());
  sparse_.assign(buckets.size(), {});
}

void PartialGradients::BeginStep() {
  stack_.clear();
  for (std::vector<at::Tensor>& leaves : sparse_) leaves.clear();
}

c10::ScalarType PartialGradients::SumDtype(const Bucket& bucket) const {
  const c10::ScalarType dtype = bucket.buffer.scalar_type();
  return average_ ? average_->dtype.value_or(dtype) : dtype;
}

at::Tensor PartialGradients::Allocate(const at::Tensor& like, c10::ScalarType dtype) const {
  if (!like.is_cpu()) return at::empty(like.sizes(), like.options().dtype(dtype));
  auto allocated = group_->AllocateShared(like.sizes(), dtype);
  ThrowIfError(allocated.status());
  return *std::move(allocated);
}

PartialGradients::Partial& PartialGradients::PartialOf(const Bucket& bucket, size_t depth) {
  std::vector<Partial>& partials = partials_[bucket.index];
  while (partials.size() <= depth) {
    Partial partial;
    partial.buffer = Allocate(bucket.buffer, SumDtype(bucket));
    for (const at::Tensor& slot : bucket.for_hook.gradients) {
      const int64_t offset = slot.storage_offset() - bucket.buffer.storage_offset() + partial.buffer.storage_offset();
      partial.slots.push_back(partial.buffer.as_strided(slot.sizes(), slot.strides(), offset));
    }
    partials.push_back(std::move(partial));
  }
  return partials[depth];
}

void PartialGradients::TakeLeaf(const std::vector<ReducedParameter>& parameters, const GradientBuckets& buckets,
                                double divisor) {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < buckets.size(); ++i) {
    if (buckets[i].sparse) sparse_[i].push_back(buckets.SparseGradient(buckets[i].parameters.front(), divisor));
  }
  Take(buckets, [&](const Bucket& bucket, size_t place) {
    at::Tensor gradient = parameters[bucket.parameters[place]].tensor.grad();
    // Rounded as on the way through the bucket.
    if (gradient.defined()) gradient = gradient.to(bucket.buffer.scalar_type());
    if (gradient.defined() && average_) gradient = gradient.to(SumDtype(bucket)).div(virtual_ranks_);
    return gradient;
  });
}

void PartialGradients::TakeEmptyLeaf(const GradientBuckets& buckets) {
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < buckets.size(); ++i) {
    if (buckets[i].sparse) sparse_[i].push_back(EmptySparse(buckets[i].for_hook.parameters.front()));
  }
  Take(buckets, [](const Bucket&, size_t) { return at::Tensor(); });
}

void PartialGradients::Take(const GradientBuckets& buckets, const Leaf& leaf) {
  const size_t depth = stack_.size();
  const int adds = tree_.Push(stack_, {next(), next() + 1});
  for (int i = 0; i < buckets.size(); ++i) {
    if (!buckets[i].sparse) AddLeaf(buckets[i], depth, adds, leaf);
  }
}

// The first addition needs no copy of the leaf.
void PartialGradients::AddLeaf(const Bucket& bucket, size_t depth, int adds, const Leaf& leaf) {
  const Partial& to = PartialOf(bucket, adds == 0 ? depth : depth - 1);
  for (size_t place = 0; place < bucket.parameters.size(); ++place) {
    const at::Tensor gradient = leaf(bucket, place);
    const at::Tensor& slot = to.slots[place];
    if (adds > 0) {
      if (gradient.defined()) {
        slot.add_(gradient);
      } else {
        slot.add_(0);  // not without effect: -0 + 0 is 0
      }
    } else if (gradient.defined()) {
      Copy(slot, gradient);
    } else {
      slot.zero_();
    }
  }
  for (int add = 1; add < adds; ++add) {
    PartialOf(bucket, depth - 1 - add).buffer.add_(PartialOf(bucket, depth - add).buffer);
  }
}

// As the hook passes it to the all_reduce.
at::Tensor PartialGradients::LastLeaf(const Bucket& bucket) {
  if (!average_) return bucket.buffer;
  const c10::ScalarType dtype = SumDtype(bucket);
  if (dtype == bucket.buffer.scalar_type()) return bucket.buffer.div_(virtual_ranks_);
  at::Tensor& cast = cast_[bucket.index];
  if (!cast.defined()) cast = Allocate(bucket.buffer, dtype);
  return cast.copy_(bucket.buffer).div_(virtual_ranks_);
}

PartialGradients::Sum PartialGradients::Start(const Bucket& bucket, int divisor) {
  const c10::NoGradGuard no_grad;
  std::vector<comm::PartialSum> stack = stack_;  // each bucket has the same leaf
  std::vector<at::Tensor> sums;
  for (size_t i = 0; i < stack.size(); ++i) sums.push_back(PartialOf(bucket, i).buffer);
  const at::Tensor result = LastLeaf(bucket);
  for (int leaf = next(); leaf < end_; ++leaf) {
    sums.push_back(leaf == next() ? result : at::Tensor());
    for (int adds = tree_.Push(stack, {leaf, leaf + 1}); adds > 0; --adds) {
      const at::Tensor right = std::move(sums.back());
      sums.pop_back();
      sums.back() = Added(sums.back(), right);
    }
  }
  size_t unused = stack_.size();
  for (at::Tensor& sum : sums) {
    if (!sum.defined()) sum = PartialOf(bucket, unused++).buffer.zero_();
  }
  return {sum_.Start(result, std::move(sums), average_ ? 1 : divisor), result};
}

Future PartialGradients::StartSparse(const Bucket& bucket) const {
  std::vector<at::Tensor> leaves = sparse_[bucket.index];
  leaves.push_back(bucket.buffer);
  leaves.resize(end_ - begin_, EmptySparse(bucket.for_hook.parameters.front()));
  return Future([this, leaves = std::move(leaves)] { return SparseAllReduce(*group_, leaves, bounds_); });
}

}  // namespace lockstep::ddp::internal
