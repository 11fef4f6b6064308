#include "lockstep/comm/tree_sum/tree_scatter.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/internal/tree_sum_backend.h"

namespace lockstep::comm {
namespace {

using internal::GroupAccess;

// The sets of ranks that share memory in which the backend adds, ascending: all ranks, those of a host, or one rank.
std::vector<std::vector<int>> HostsOf(const ProcessGroup& group, c10::DeviceType device) {
  if (const auto* const backend = GroupAccess::HostSumBackendOf(group, device)) return backend->hosts();
  std::vector<std::vector<int>> hosts;
  const bool together = GroupAccess::TreeSumBackendOf(group, device) != nullptr;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == 0 || !together) hosts.emplace_back();
    hosts.back().push_back(rank);
  }
  return hosts;
}

// Adds the two on top of a stack.
void AddTop(std::vector<at::Tensor>& stack) {
  const at::Tensor right = stack.back();
  stack.pop_back();
  stack.back().add_(right);
}

}  // namespace

TreeScatter::TreeScatter(ProcessGroup* group, int leaves, c10::DeviceType device)
    : group_(group), tree_(leaves), device_(device) {
  const std::vector<std::vector<int>> hosts = HostsOf(*group, device);
  for (int begin = 0; begin < leaves; begin += group->size()) {
    std::vector<Node>& nodes = rounds_.emplace_back();
    for (const PartialSum node : tree_.Cover(begin, std::min(begin + group->size(), leaves))) {
      std::vector<std::vector<HostSum>> of_hosts;
      for (const std::vector<int>& host : hosts) of_hosts.push_back(SumsOfHost(tree_, node, begin, host));
      nodes.push_back({node, std::make_shared<const std::vector<std::vector<HostSum>>>(std::move(of_hosts))});
    }
  }
}

int TreeScatter::LeafOf(int round, int rank) const {
  const int leaf = round * group_->size() + rank;
  return leaf < tree_.leaves() ? leaf : -1;
}

absl::Status TreeScatter::Start(int round, const at::Tensor& leaf, Sum* sum) const {
  if (leaf.numel() != sum->bounds_->back() || leaf.dtype() != sum->result_.dtype() || !leaf.is_contiguous() ||
      leaf.device().type() != device_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", group_->rank(), ": tree_scatter: expected a contiguous leaf of ", sum->bounds_->back(),
        " elements of ", c10::toString(sum->result_.scalar_type()), " on ", c10::DeviceTypeName(device_, true),
        ", found ", leaf.numel(), " of ", c10::toString(leaf.scalar_type()), " on ", leaf.device().str()));
  }
  const c10::NoGradGuard no_grad;
  if (round == 0) {
    sum->nodes_.clear();
    sum->slices_.clear();
    sum->divided_ = false;
  }
  for (const Node& node : rounds_[round]) StartNode(node, round, leaf, sum);
  return absl::OkStatus();
}

void TreeScatter::StartNode(const Node& node, int round, const at::Tensor& leaf, Sum* sum) const {
  const int ranks = group_->size();
  const bool is_first = sum->slices_.empty() && sum->pending_.empty();
  Sum::Pending pending;
  pending.node = node.node;
  pending.slice = is_first ? sum->result_ : at::empty_like(sum->result_);
  if (ranks == 1) {
    pending.slice.copy_(leaf);
    sum->pending_.push_back(std::move(pending));
    return;
  }
  if (GroupAccess::TreeSumBackendOf(*group_, device_)) {
    auto order = std::make_shared<TreeSumOrder>((*node.of_hosts)[0][0].order);
    order->slices = *sum->bounds_;
    sum->divided_ = node.node.begin == 0 && node.node.end == tree_.leaves();
    if (sum->divided_) order->divisor = tree_.leaves();
    pending.work = GroupAccess::TreeScatterAsync(*group_, pending.slice, leaf, std::move(order));
    sum->pending_.push_back(std::move(pending));
    return;
  }
  for (const std::vector<HostSum>& of_host : *node.of_hosts) {
    for (const HostSum& addend : of_host) pending.addends.push_back(addend.node);
  }
  pending.received = at::empty({static_cast<int64_t>(pending.addends.size()) * pending.slice.numel()}, leaf.options());
  if (GroupAccess::HostSumBackendOf(*group_, device_)) {
    pending.work = GroupAccess::SumOnHostsAsync(
        *group_, pending.received, leaf,
        std::make_shared<const internal::HostSums>(internal::HostSums{node.of_hosts, sum->bounds_}));
  } else {
    pending.work = StartExchange(round, leaf, pending, *sum->bounds_);
  }
  sum->pending_.push_back(std::move(pending));
}

// Each rank that has a leaf of the node sends every other rank its slice.
Work TreeScatter::StartExchange(int round, const at::Tensor& leaf, const Sum::Pending& pending,
                                const std::vector<int64_t>& bounds) const {
  const int ranks = group_->size(), own_leaf = LeafOf(round, group_->rank());
  const bool brings = own_leaf >= pending.node.begin && own_leaf < pending.node.end;
  std::vector<int64_t> sent(ranks, 0), received(ranks, 0);
  for (int other = 0; brings && other < ranks; ++other) sent[other] = bounds[other + 1] - bounds[other];
  for (const PartialSum addend : pending.addends) received[addend.begin - round * ranks] = pending.slice.numel();
  return group_->AllToAllSingleAsync(pending.received, brings ? leaf : leaf.narrow(0, 0, 0), received, sent);
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
  std::map<int, int64_t> order;  // by where an addend begins: its place in `received`
  for (size_t i = 0; i < pending.addends.size(); ++i) order[pending.addends[i].begin] = static_cast<int64_t>(i);
  std::vector<PartialSum> nodes;
  std::vector<at::Tensor> stack;
  for (const auto& [begin, place] : order) {
    stack.push_back(pending.received.narrow(0, place * own, own));
    for (int left = tree_.Push(nodes, pending.addends[place]); left > 0; --left) AddTop(stack);
  }
  if (!stack.empty()) pending.slice.copy_(stack[0]);
  sum->slices_.push_back(pending.slice);
  for (int left = tree_.Push(sum->nodes_, pending.node); left > 0; --left) AddTop(sum->slices_);
}

}  // namespace lockstep::comm
