// ProcessGroup's collectives in which all ranks contribute, or all ranks receive, the same shape.

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/comm/internal/dispatch.h"
#include "lockstep/comm/internal/tree_sum_backend.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

using internal::Call;
using internal::CheckDense;
using internal::CheckTensor;
using internal::Layouts;

namespace {

std::string OpArgument(ReduceOp op) { return absl::StrCat("op ", NameOf(op)); }
std::string RootArgument(int root) { return absl::StrCat("root ", root); }

absl::Status CheckSparse(ReduceOp op) {
  if (op == ReduceOp::kSum) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the tensor is sparse, which has a sum only, found op ", NameOf(op)));
}

// The tensor is checked first, since an undefined tensor has no dtype to check.
absl::Status CheckReduction(const at::Tensor& tensor, ReduceOp op) {
  LOCKSTEP_RETURN_IF_ERROR(CheckDense(tensor));
  return CheckReduceOp(op, tensor.scalar_type());
}

absl::Status CheckPremulSum(const at::Tensor& tensor) {
  LOCKSTEP_RETURN_IF_ERROR(CheckTensor(tensor));
  if (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a sum of products needs a tensor of floats or doubles, found ",
                                                 c10::toString(tensor.scalar_type())));
}

absl::Status CheckCoalesced(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  if (tensors.empty()) return absl::InvalidArgumentError("expected one tensor or more, found none");
  LOCKSTEP_RETURN_IF_ERROR(CheckReduction(tensors[0], op));
  return internal::CheckList(tensors, "tensor", tensors[0], static_cast<int>(tensors.size()), /*same_shape=*/false);
}

// Gloo is the only backend of c10d that supports it. The others report that only after they have begun, or with an
// error of another type.
c10::intrusive_ptr<c10d::Work> SumSparse(c10d::Backend& backend, const at::Tensor& tensor) {
  const std::string name = backend.getBackendName();
  TORCH_CHECK_NOT_IMPLEMENTED(name == "gloo", "the ", name, " backend has no sum of sparse tensors");
  std::vector<at::Tensor> tensors = {tensor};
  return backend.allreduce_sparse(tensors);
}

std::string SizesArgument(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) absl::StrAppend(&text, internal::Describe(tensor), ", ");
  return text;
}

}  // namespace

Work ProcessGroup::BroadcastAsync(const at::Tensor& tensor, int root) {
  Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      Call::Of("broadcast", tensor),
      [&]() -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(CheckDense(tensor));
        return internal::CheckRank(root, "root", size_);
      },
      [&] { return RootArgument(root); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> tensors = {layouts.Update(tensor)};
        c10d::BroadcastOptions options;
        options.rootRank = root;
        return backend.broadcast(tensors, options);
      });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::AllReduceAsync(const at::Tensor& tensor, ReduceOp op) {
  const bool sparse = tensor.defined() && tensor.is_sparse();
  Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      Call::Of("all_reduce", tensor), [&] { return sparse ? CheckSparse(op) : CheckReduction(tensor, op); },
      [&] { return OpArgument(op); },
      [&](c10d::Backend& backend) -> c10::intrusive_ptr<c10d::Work> {
        if (sparse) return SumSparse(backend, tensor);
        if (size_ == 1) return {};  // the reduction of one input is that input
        std::vector<at::Tensor> tensors = {layouts.Update(tensor)};
        c10d::AllreduceOptions options;
        options.reduceOp = internal::ToC10d(op);
        return backend.allreduce(tensors, options);
      });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::AllReducePremulSumAsync(const at::Tensor& tensor, double factor) {
  return Dispatch(
      Call::Of("all_reduce", tensor), [&] { return CheckPremulSum(tensor); }, [&] { return "op premul_sum"; },
      [&](c10d::Backend& backend) -> c10::intrusive_ptr<c10d::Work> {
        std::vector<at::Tensor> tensors = {tensor};
        c10d::AllreduceOptions options;
        if (tensor.is_cpu() && SharesMemory()) {
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 13)
          options.reduceOp = c10d::makePreMulSum(factor);
#else
          options.reduceOp = c10d::makeNCCLPreMulSum(factor);
#endif
        } else {
          tensors[0].detach().mul_(factor);
        }
        return backend.allreduce(tensors, options);
      });
}

internal::TreeSumBackend* ProcessGroup::TreeSumBackendOf(c10::DeviceType device) const {
  const auto found = backends_.find(device);
  return found == backends_.end() ? nullptr : dynamic_cast<internal::TreeSumBackend*>(found->second.get());
}

Work ProcessGroup::TreeSumAsync(const at::Tensor& output, const std::vector<at::Tensor>& sums,
                                std::shared_ptr<const TreeSumOrder> order) {
  return Dispatch(
      Call::Of("tree_sum", output), [&] { return CheckTensor(output); },
      [&] { return absl::StrCat("divisor ", order->divisor); },
      [&](c10d::Backend& backend) {
        return dynamic_cast<internal::TreeSumBackend&>(backend).TreeSum(output, sums, std::move(order));
      });
}

Work ProcessGroup::TreeScatterAsync(const at::Tensor& slice, const at::Tensor& leaf,
                                    std::shared_ptr<const TreeSumOrder> order) {
  return Dispatch(
      Call::Of("tree_scatter", leaf), [&] { return CheckTensor(leaf); },
      [&] { return absl::StrCat("divisor ", order->divisor); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> sums;
        if (order->counts[rank_] == 1) sums.push_back(leaf);
        return dynamic_cast<internal::TreeSumBackend&>(backend).TreeSum(slice, sums, std::move(order));
      });
}

internal::HostSumBackend* ProcessGroup::HostSumBackendOf(c10::DeviceType device) const {
  const auto found = backends_.find(device);
  if (found == backends_.end()) return nullptr;
  auto* const backend = dynamic_cast<internal::HostSumBackend*>(found->second.get());
  return backend && !backend->hosts().empty() ? backend : nullptr;
}

Work ProcessGroup::SumOnHostsAsync(const at::Tensor& received, const at::Tensor& leaf,
                                   std::shared_ptr<const internal::HostSums> sums) {
  return Dispatch(
      Call::Of("tree_scatter", leaf), [&] { return CheckTensor(leaf); }, [] { return ""; },
      [&](c10d::Backend& backend) {
        return dynamic_cast<internal::HostSumBackend&>(backend).SumOnHosts(received, leaf, std::move(sums));
      });
}

Work ProcessGroup::AllReduceCoalescedAsync(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  return Dispatch(
      Call::Of("all_reduce_coalesced", tensors.empty() ? at::Tensor() : tensors[0]),
      [&] { return CheckCoalesced(tensors, op); }, [&] { return absl::StrCat(SizesArgument(tensors), OpArgument(op)); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> copy = tensors;
        c10d::AllreduceCoalescedOptions options;
        options.reduceOp = internal::ToC10d(op);
        return backend.allreduce_coalesced(copy, options);
      });
}

Work ProcessGroup::ReduceAsync(const at::Tensor& tensor, int root, ReduceOp op) {
  Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      Call::Of("reduce", tensor),
      [&]() -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(CheckReduction(tensor, op));
        return internal::CheckRank(root, "root", size_);
      },
      [&] { return absl::StrCat(RootArgument(root), ", ", OpArgument(op)); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> tensors = {layouts.Update(tensor)};
        c10d::ReduceOptions options;
        options.reduceOp = internal::ToC10d(op);
        options.rootRank = root;
        return backend.reduce(tensors, options);
      });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::AllGatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  Layouts layouts(/*by_index=*/true);  // as in Python's Gloo
  Work work = Dispatch(
      Call::Of("all_gather", input),
      [&]() -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(CheckDense(input));
        LOCKSTEP_RETURN_IF_ERROR(internal::CheckList(outputs, "output", input, size_, /*same_shape=*/true));
        const bool by_index = MatchesByIndex() || input.is_cpu();
        return by_index ? absl::OkStatus() : internal::CheckContiguous(input, outputs, "output");
      },
      [] { return ""; },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> inputs = {layouts.Read(input)};
        std::vector<std::vector<at::Tensor>> output_lists = {layouts.Write(outputs)};
        return backend.allgather(output_lists, inputs);
      });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::AllGatherIntoTensorAsync(const at::Tensor& output, const at::Tensor& input) {
  return Dispatch(
      Call::Of("all_gather_into_tensor", input),
      [&]() -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(CheckTensor(input));
        return internal::CheckMultiple(output, "output", input, size_);
      },
      [] { return ""; },
      [&](c10d::Backend& backend) {
        at::Tensor to = output, from = input;
        return backend._allgather_base(to, from);
      });
}

Work ProcessGroup::ReduceScatterAsync(const at::Tensor& output, const std::vector<at::Tensor>& inputs, ReduceOp op) {
  Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      Call::Of("reduce_scatter", output),
      [&]() -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(CheckReduction(output, op));
        LOCKSTEP_RETURN_IF_ERROR(internal::CheckList(inputs, "input", output, size_, /*same_shape=*/true));
        return MatchesByIndex() ? absl::OkStatus() : internal::CheckContiguous(output, inputs, "input");
      },
      [&] { return OpArgument(op); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> to = {layouts.Write(output)};
        std::vector<std::vector<at::Tensor>> from = {layouts.Read(inputs)};
        c10d::ReduceScatterOptions options;
        options.reduceOp = internal::ToC10d(op);
        return backend.reduce_scatter(to, from, options);
      });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::ReduceScatterTensorAsync(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return Dispatch(
      Call::Of("reduce_scatter_tensor", output),
      [&]() -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(CheckReduction(output, op));
        LOCKSTEP_RETURN_IF_ERROR(CheckTensor(output));
        return internal::CheckMultiple(input, "input", output, size_);
      },
      [&] { return OpArgument(op); },
      [&](c10d::Backend& backend) {
        at::Tensor to = output, from = input;
        c10d::ReduceScatterOptions options;
        options.reduceOp = internal::ToC10d(op);
        return backend._reduce_scatter_base(to, from, options);
      });
}

absl::Status ProcessGroup::Broadcast(const at::Tensor& tensor, int root) { return BroadcastAsync(tensor, root).Wait(); }

absl::Status ProcessGroup::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  return AllReduceAsync(tensor, op).Wait();
}

absl::Status ProcessGroup::AllReduceCoalesced(const std::vector<at::Tensor>& tensors, ReduceOp op) {
  return AllReduceCoalescedAsync(tensors, op).Wait();
}

absl::Status ProcessGroup::Reduce(const at::Tensor& tensor, int root, ReduceOp op) {
  return ReduceAsync(tensor, root, op).Wait();
}

absl::Status ProcessGroup::AllGather(const std::vector<at::Tensor>& outputs, const at::Tensor& input) {
  return AllGatherAsync(outputs, input).Wait();
}

absl::Status ProcessGroup::AllGatherIntoTensor(const at::Tensor& output, const at::Tensor& input) {
  return AllGatherIntoTensorAsync(output, input).Wait();
}

absl::Status ProcessGroup::ReduceScatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, ReduceOp op) {
  return ReduceScatterAsync(output, inputs, op).Wait();
}

absl::Status ProcessGroup::ReduceScatterTensor(const at::Tensor& output, const at::Tensor& input, ReduceOp op) {
  return ReduceScatterTensorAsync(output, input, op).Wait();
}

}  // namespace lockstep::comm
