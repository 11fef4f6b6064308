#include "lockstep/comm/tree_sum/tree_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/call.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/internal/tree_sum_backend.h"

namespace lockstep::comm {
namespace {

using internal::GroupAccess;

absl::Status CheckBounds(const std::vector<int>& bounds, int ranks) {
  const bool ascending = std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()) == bounds.end();
  if (static_cast<int>(bounds.size()) == ranks + 1 && bounds[0] == 0 && ascending) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected ", ranks + 1, " ascending bounds from 0 on, one block a rank, found ", absl::StrJoin(bounds, ", ")));
}

// Adds the sums, each of which it may overwrite, into the first.
at::Tensor Added(const std::vector<at::Tensor>& sums, const std::vector<uint8_t>& adds) {
  std::vector<at::Tensor> stack;
  for (size_t i = 0; i < sums.size(); ++i) {
    stack.push_back(sums[i]);
    for (int left = adds[i]; left > 0; --left) {
      const at::Tensor right = stack.back();
      stack.pop_back();
      stack.back().add_(right);
    }
  }
  return stack[0];
}

}  // namespace

// The elements are divided into one share for each rank. First each rank receives its share of all partial sums, then
// it has the sum of its share, which all gather.
struct PendingTreeSum::Exchange {
  ProcessGroup* group;
  TreeSumOrder order;
  int64_t share;        // elements, the last share filled up with zeros
  at::Tensor received;  // of each rank, its partial sums' shares
  at::Tensor gathered;

  // The sum of this rank's share.
  at::Tensor Sum() const {
    std::vector<at::Tensor> sums;
    for (size_t i = 0; i < order.adds.size(); ++i) sums.push_back(received.narrow(0, i * share, share));
    const at::Tensor sum = Added(sums, order.adds);
    if (order.divisor != 1) sum.div_(order.divisor);
    return sum;
  }
};

bool PendingTreeSum::IsCompleted() const {
  if (!status_.ok() || !work_) return true;
  return !exchange_ && work_->IsCompleted();
}

absl::Status PendingTreeSum::Advance() {
  if (!status_.ok() || !exchange_ || exchange_->gathered.defined()) return status_;
  status_ = work_->Wait();
  LOCKSTEP_RETURN_IF_ERROR(status_);
  const c10::NoGradGuard no_grad;
  ProcessGroup& group = *exchange_->group;
  const auto started = TorchStatus(absl::StrCat("rank ", group.rank(), ": adding the ranks' sums"), [&] {
    const at::Tensor sum = exchange_->Sum();
    exchange_->gathered = at::empty({group.size() * exchange_->share}, sum.options());
    work_ = group.AllGatherIntoTensorAsync(exchange_->gathered, sum);
  });
  // The other ranks would wait for this one.
  if (!started.ok()) group.Abort(started);
  return status_ = started;
}

absl::Status PendingTreeSum::Wait() {
  LOCKSTEP_RETURN_IF_ERROR(Advance());
  if (!work_) return status_;
  status_ = work_->Wait();
  work_.reset();
  LOCKSTEP_RETURN_IF_ERROR(status_);
  const c10::NoGradGuard no_grad;
  if (exchange_) output_.view(-1).copy_(exchange_->gathered.narrow(0, 0, output_.numel()));
  if (shared_output_.defined()) output_.copy_(shared_output_);
  return status_;
}

absl::StatusOr<TreeSum> TreeSum::Create(ProcessGroup* group, std::vector<int> bounds) {
  const absl::Status valid = CheckBounds(bounds, group->size());
  if (!valid.ok()) return Annotate(valid, absl::StrCat("rank ", group->rank(), ": tree_sum"));
  return TreeSum(group, SumTree(bounds.back()), bounds);
}

TreeSum::TreeSum(ProcessGroup* group, const SumTree& tree, const std::vector<int>& bounds)
    : group_(group),
      own_(tree.Cover(bounds[group->rank()], bounds[group->rank() + 1])),
      order_(OrderOf(tree, bounds)) {}

absl::Status TreeSum::Check(const at::Tensor& output, const std::vector<at::Tensor>& sums, int divisor) const {
  if (sums.size() != own_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", own_.size(), " partial sums, found ", sums.size()));
  }
  if (divisor < 1) return absl::InvalidArgumentError(absl::StrCat("expected a divisor of at least 1, found ", divisor));
  for (size_t i = 0; i <= sums.size(); ++i) {
    const at::Tensor& tensor = i == 0 ? output : sums[i - 1];
    const bool usable = tensor.defined() && tensor.is_contiguous() && !tensor.is_sparse() &&
                        (tensor.is_floating_point() || tensor.is_complex());
    if (usable && tensor.sizes() == output.sizes() && tensor.dtype() == output.dtype() &&
        tensor.device() == output.device()) {
      continue;
    }
    const std::string name = i == 0 ? "the output" : absl::StrCat("partial sum ", i - 1);
    return absl::InvalidArgumentError(
        absl::StrCat("expected dense, contiguous tensors of one shape, dtype and device, floating-point or complex; ",
                     name, " is ", internal::Describe(tensor), ", the output ", internal::Describe(output)));
  }
  return absl::OkStatus();
}

PendingTreeSum TreeSum::Start(const at::Tensor& output, std::vector<at::Tensor> sums, int divisor) const {
  const absl::Status valid = Check(output, sums, divisor);
  if (!valid.ok()) {
    return PendingTreeSum(Annotate(valid, absl::StrCat("rank ", group_->rank(), ": tree_sum")));
  }
  if (output.numel() == 0) return PendingTreeSum(absl::OkStatus());
  const c10::NoGradGuard no_grad;
  if (group_->size() == 1) {
    if (!output.is_same(sums[0])) output.copy_(sums[0]);
    if (divisor != 1) output.div_(divisor);
    return PendingTreeSum(absl::OkStatus());
  }
  if (GroupAccess::TreeSumBackendOf(*group_, output.device().type())) {
    return StartInSharedMemory(output, std::move(sums), divisor);
  }
  return StartExchange(output, sums, divisor);
}

PendingTreeSum TreeSum::StartInSharedMemory(const at::Tensor& output, std::vector<at::Tensor> sums, int divisor) const {
  PendingTreeSum pending{absl::OkStatus()};
  const internal::TreeSumBackend& backend = *GroupAccess::TreeSumBackendOf(*group_, output.device().type());
  const auto share = [&](const at::Tensor& tensor) -> at::Tensor {
    if (backend.InSharedMemory(tensor)) return tensor;
    absl::StatusOr<at::Tensor> shared = group_->AllocateShared(tensor.sizes(), tensor.scalar_type());
    pending.status_.Update(shared.status());
    return shared.ok() ? shared->copy_(tensor) : tensor;
  };
  at::Tensor result;
  for (at::Tensor& sum : sums) {
    const bool is_output = sum.is_same(output);
    sum = share(sum);
    if (is_output) result = sum;
  }
  if (!result.defined()) result = backend.InSharedMemory(output) ? output : sums[0];
  if (!pending.status_.ok()) {
    group_->Abort(pending.status_);  // the other ranks would wait for this one
    return pending;
  }
  pending.output_ = output;
  if (!result.is_same(output)) pending.shared_output_ = result;
  auto order = std::make_shared<TreeSumOrder>(order_);
  order->divisor = divisor;
  pending.work_ = GroupAccess::TreeSumAsync(*group_, result, sums, std::move(order));
  return pending;
}

PendingTreeSum TreeSum::StartExchange(const at::Tensor& output, const std::vector<at::Tensor>& sums,
                                      int divisor) const {
  PendingTreeSum pending{absl::OkStatus()};
  const int ranks = group_->size();
  const int64_t share = (output.numel() + ranks - 1) / ranks, own = static_cast<int64_t>(sums.size());
  auto exchange = std::make_shared<PendingTreeSum::Exchange>();
  exchange->group = group_;
  exchange->order = order_;
  exchange->order.divisor = divisor;
  exchange->share = share;
  // Rank r's shares of all sums come together.
  const int64_t whole = output.numel() / share;  // shares without zeros
  const at::Tensor sent = at::zeros({ranks, own, share}, output.options());
  for (int64_t i = 0; i < own; ++i) {
    const at::Tensor sum = sums[i].view(-1), to = sent.select(1, i);
    to.narrow(0, 0, whole).copy_(sum.narrow(0, 0, whole * share).view({whole, share}));
    const int64_t rest = sum.numel() - whole * share;
    if (rest > 0) to.select(0, whole).narrow(0, 0, rest).copy_(sum.narrow(0, whole * share, rest));
  }
  std::vector<int64_t> received;
  for (const int count : order_.counts) received.push_back(count * share);
  exchange->received = at::empty({static_cast<int64_t>(order_.adds.size()) * share}, output.options());
  pending.output_ = output;
  pending.work_ = group_->AllToAllSingleAsync(exchange->received, sent.view(-1), received,
                                              std::vector<int64_t>(ranks, own * share));
  pending.exchange_ = std::move(exchange);
  return pending;
}

}  // namespace lockstep::comm
