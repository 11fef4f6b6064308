#include "lockstep/comm/tree_sum/tree_scatter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::comm {
namespace {

using internal::GroupAccess;

// For each leaf of a node, in order: the additions that follow once it is on the stack.
std::vector<uint8_t> AddsOf(const SumTree& tree, PartialSum node) {
  std::vector<uint8_t> adds;
  std::vector<PartialSum> stack;
  for (int leaf = node.begin; leaf < node.end; ++leaf)
    adds.push_back(static_cast<uint8_t>(tree.Push(stack, {leaf, leaf + 1})));
  return adds;
}

// Adds the two on top of a stack.
void AddTop(std::vector<at::Tensor>& stack) {
  const at::Tensor right = stack.back();
  stack.pop_back();
  stack.back().add_(right);
}

}  // namespace

int TreeScatter::LeafOf(int round, int rank) const {
  const int leaf = round * group_->size() + rank;
  return leaf < tree_.leaves() ? leaf : -1;
}

absl::Status TreeScatter::Start(int round, const at::Tensor& leaf, Sum* sum) const {
  if (leaf.numel() != sum->bounds_.back() || leaf.dtype() != sum->result_.dtype() || !leaf.is_contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", group_->rank(), ": tree_scatter: expected a contiguous leaf of ", sum->bounds_.back(),
                     " elements of ", c10::toString(sum->result_.scalar_type()), ", found ", leaf.numel(), " of ",
                     c10::toString(leaf.scalar_type())));
  }
  const c10::NoGradGuard no_grad;
  if (round == 0) {
    sum->nodes_.clear();
    sum->slices_.clear();
    sum->divided_ = false;
  }
  const int begin = round * group_->size(), end = std::min(begin + group_->size(), tree_.leaves());
  for (const PartialSum node : tree_.Cover(begin, end)) LOCKSTEP_RETURN_IF_ERROR(StartNode(node, round, leaf, sum));
  return absl::OkStatus();
}

absl::Status TreeScatter::StartNode(PartialSum node, int round, const at::Tensor& leaf, Sum* sum) const {
  const int ranks = group_->size(), rank = group_->rank(), first = round * ranks;
  const bool is_first = sum->slices_.empty() && sum->pending_.empty();
  at::Tensor slice = is_first ? sum->result_ : at::empty_like(sum->result_);
  const bool brings = LeafOf(round, rank) >= node.begin && LeafOf(round, rank) < node.end;
  const int64_t own = slice.numel();
  if (ranks == 1) {
    slice.copy_(leaf);
    sum->pending_.push_back({node, std::move(slice), at::Tensor(), std::nullopt});
    return absl::OkStatus();
  }
  if (GroupAccess::TreeSumBackendOf(*group_, leaf.device().type())) {
    auto order = std::make_shared<TreeSumOrder>();
    order->counts.assign(ranks, 0);
    for (int member = node.begin - first; member < node.end - first; ++member) order->counts[member] = 1;
    order->adds = AddsOf(tree_, node);
    order->slices = sum->bounds_;
    sum->divided_ = node.begin == 0 && node.end == tree_.leaves();
    if (sum->divided_) order->divisor = tree_.leaves();
    Work work = GroupAccess::TreeScatterAsync(*group_, slice, leaf, std::move(order));
    sum->pending_.push_back({node, std::move(slice), at::Tensor(), std::move(work)});
    return absl::OkStatus();
  }
  std::vector<int64_t> sent(ranks, 0), received(ranks, 0);
  for (int other = 0; brings && other < ranks; ++other) sent[other] = sum->bounds_[other + 1] - sum->bounds_[other];
  for (int member = node.begin - first; member < node.end - first; ++member) received[member] = own;
  const at::Tensor all = at::empty({(node.end - node.begin) * own}, leaf.options());
  Work work = group_->AllToAllSingleAsync(all, brings ? leaf : leaf.narrow(0, 0, 0), received, sent);
  sum->pending_.push_back({node, std::move(slice), all, std::move(work)});
  return absl::OkStatus();
}

bool TreeScatter::IsCompleted(const Sum& sum) {
  return std::all_of(sum.pending_.begin(), sum.pending_.end(),
                     [](const Sum::Pending& pending) { return !pending.work || pending.work->IsCompleted(); });
}

absl::Status TreeScatter::Wait(Sum* sum) const {
  const c10::NoGradGuard no_grad;
  for (Sum::Pending& pending : std::exchange(sum->pending_, {})) {
    if (pending.work) LOCKSTEP_RETURN_IF_ERROR(pending.work->Wait());
    Push(std::move(pending), sum);
  }
  const bool complete = !sum->nodes_.empty() && sum->nodes_[0].end == tree_.leaves();
  if (complete && !sum->divided_ && tree_.leaves() > 1) sum->result_.div_(tree_.leaves());
  sum->divided_ |= complete;
  return absl::OkStatus();
}

void TreeScatter::Push(Sum::Pending pending, Sum* sum) const {
  const int64_t own = pending.slice.numel();
  if (pending.received.defined()) {
    std::vector<at::Tensor> stack;
    const std::vector<uint8_t> adds = AddsOf(tree_, pending.node);
    for (size_t i = 0; i < adds.size(); ++i) {
      stack.push_back(pending.received.narrow(0, static_cast<int64_t>(i) * own, own));
      for (int left = adds[i]; left > 0; --left) AddTop(stack);
    }
    pending.slice.copy_(stack[0]);
  }
  sum->slices_.push_back(pending.slice);
  for (int left = tree_.Push(sum->nodes_, pending.node); left > 0; --left) AddTop(sum->slices_);
}

}  // namespace lockstep::comm
