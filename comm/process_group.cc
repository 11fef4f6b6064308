#include "lockstep/comm/process_group.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/comm/internal/group_failure.h"

namespace lockstep::comm {
namespace {

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return absl::StrCat(c10::toString(tensor.scalar_type()), " [", absl::StrJoin(tensor.sizes(), ", "), "] on ",
                      tensor.device().str());
}

absl::Status CheckTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return absl::InvalidArgumentError("the tensor is undefined");
  if (tensor.layout() != at::kStrided) return absl::InvalidArgumentError("the tensor is not dense");
  if (!tensor.is_contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tensor is not contiguous: its strides are [", absl::StrJoin(tensor.strides(), ", "), "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int size) {
  if (static_cast<int>(outputs.size()) != size) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", size, " outputs, one a rank, found ", outputs.size()));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string which = absl::StrCat("output ", i);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckTensor(outputs[i]), which));
    if (outputs[i].sizes() != input.sizes() || outputs[i].scalar_type() != input.scalar_type() ||
        outputs[i].device() != input.device()) {
      return absl::InvalidArgumentError(
          absl::StrCat(which, " is ", Describe(outputs[i]), ", expected ", Describe(input)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOp(const at::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::kAvg && tensor.defined() && !tensor.is_floating_point() && !tensor.is_complex()) {
    return absl::InvalidArgumentError("an average needs a floating-point or complex tensor");
  }
  return absl::OkStatus();
}

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:  // divided afterwards: Gloo has no average
      return c10d::ReduceOp::SUM;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  TORCH_CHECK_VALUE(false, "no such ReduceOp: ", static_cast<int>(op));
}

}  // namespace

std::unique_ptr<ProcessGroup> ProcessGroup::FromBackends(
    c10::intrusive_ptr<c10d::Store> store, c10::intrusive_ptr<c10d::Store> master,
    std::map<c10::DeviceType, c10::intrusive_ptr<c10d::Backend>> backends) {
  TORCH_CHECK_VALUE(!backends.empty(), "a process group needs a backend");
  std::unique_ptr<ProcessGroup> group(new ProcessGroup());
  group->rank_ = backends.begin()->second->getRank();
  group->size_ = backends.begin()->second->getSize();
  group->store_ = std::move(store);
  group->master_ = std::move(master);
  group->backends_ = std::move(backends);
  group->failure_ = std::make_shared<internal::GroupFailure>();
  return group;
}

ProcessGroup::~ProcessGroup() {
  if (failure().ok()) return;
  // See the class comment; the server must stay for the backends that are left.
  for (auto& entry : backends_) entry.second.release();
  master_.release();
}

absl::Status ProcessGroup::failure() const { return failure_->first(); }

std::string ProcessGroup::NextKey(absl::string_view purpose) { return absl::StrCat(purpose, "/", keys_.fetch_add(1)); }

absl::StatusOr<c10d::Backend*> ProcessGroup::BackendFor(const at::Tensor& tensor) const {
  const auto found = backends_.find(tensor.device().type());
  if (found != backends_.end()) return found->second.get();
  return absl::InvalidArgumentError(
      absl::StrCat("the group has no backend for ", c10::DeviceTypeName(tensor.device().type(), true), " tensors"));
}

absl::Status ProcessGroup::CheckRoot(int root) const {
  if (root >= 0 && root < size_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("root ", root, " is no rank of a group of ", size_));
}

Work ProcessGroup::Start(absl::string_view operation, const at::Tensor& tensor, absl::Status valid,
                         const std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>& start,
                         std::function<void()> after) {
  const absl::Status failed = failure();
  if (!failed.ok()) return Work(failed);
  const int64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed);
  std::string name = absl::StrCat("rank ", rank_, ": ", operation, " #", sequence, " of ", Describe(tensor));
  valid.Update(CheckTensor(tensor));
  if (!valid.ok()) return Work(Annotate(valid, name));
  const absl::StatusOr<c10d::Backend*> backend = BackendFor(tensor);
  if (!backend.ok()) return Work(Annotate(backend.status(), name));
  return Launch(
      std::move(name), [&] { return start(**backend); }, std::move(after));
}

Work ProcessGroup::Launch(std::string name, const std::function<c10::intrusive_ptr<c10d::Work>()>& start,
                          std::function<void()> after) {
  try {
    return Work(start(), std::move(name), failure_, std::move(after));
  } catch (...) {
    const absl::Status status = internal::BackendStatus(name);
    failure_->Record(status);
    return Work(status);
  }
}

Work ProcessGroup::BroadcastAsync(const at::Tensor& tensor, int root) {
  return Start("broadcast", tensor, CheckRoot(root), [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(tensors, options);
  });
}

Work ProcessGroup::AllReduceAsync(const at::Tensor& tensor, ReduceOp op) {
  std::function<void()> divide;
  if (op == ReduceOp::kAvg) divide = [tensor, size = size_] { tensor.detach().div_(size); };
  return Start(
      "all_reduce", tensor, CheckOp(tensor, op),
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> tensors = {tensor};
        c10d::AllreduceOptions options;
        options.reduceOp = ToC10d(op);
        return backend.allreduce(tensors, options);
      },
      std::move(divide));
}

Work ProcessGroup::AllGatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  const absl::Status valid = input.defined() ? CheckOutputs(outputs, input, size_) : absl::OkStatus();
  return Start("all_gather", input, valid, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> inputs = {input};
    std::vector<std::vector<at::Tensor>> output_lists = {outputs};
    return backend.allgather(output_lists, inputs);
  });
}

Work ProcessGroup::BarrierAsync() {
  const absl::Status failed = failure();
  if (!failed.ok()) return Work(failed);
  std::string name = absl::StrCat("rank ", rank_, ": barrier #", sequence_.fetch_add(1, std::memory_order_relaxed));
  return Launch(
      std::move(name), [&] { return backends_.begin()->second->barrier(); }, nullptr);
}

absl::Status ProcessGroup::Broadcast(const at::Tensor& tensor, int root) { return BroadcastAsync(tensor, root).Wait(); }

absl::Status ProcessGroup::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  return AllReduceAsync(tensor, op).Wait();
}

absl::Status ProcessGroup::AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  return AllGatherAsync(outputs, input).Wait();
}

absl::Status ProcessGroup::Barrier() { return BarrierAsync().Wait(); }

}  // namespace lockstep::comm
