#include "lockstep/comm/testing/thread_call.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm::testing {
namespace {

using c10d::OpType;
using RedOp = c10d::ReduceOp::RedOpType;

void Combine(at::Tensor& sum, const at::Tensor& next, RedOp op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      sum.add_(next);
      return;
    case c10d::ReduceOp::PRODUCT:
      sum.mul_(next);
      return;
    case c10d::ReduceOp::MIN:
      at::minimum_out(sum, sum, next);
      return;
    case c10d::ReduceOp::MAX:
      at::maximum_out(sum, sum, next);
      return;
    case c10d::ReduceOp::BAND:
      sum.bitwise_and_(next);
      return;
    case c10d::ReduceOp::BOR:
      sum.bitwise_or_(next);
      return;
    case c10d::ReduceOp::BXOR:
      sum.bitwise_xor_(next);
      return;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "this reduction is not implemented between threads");
  }
}

// Reduces every rank's inputs[index].
at::Tensor Reduced(const std::vector<ThreadCall>& calls, size_t index) {
  at::Tensor sum = calls[0].inputs[index].clone();
  for (size_t rank = 1; rank < calls.size(); ++rank) Combine(sum, calls[rank].inputs[index], calls[rank].op);
  if (calls[0].op == c10d::ReduceOp::AVG) sum.div_(static_cast<int64_t>(calls.size()));
  return sum;
}

void Copy(const at::Tensor& to, const at::Tensor& from, size_t to_rank, size_t from_rank) {
  TORCH_CHECK_VALUE(to.numel() == from.numel(), "rank ", to_rank, " expects ", to.numel(), " elements from rank ",
                    from_rank, ", which sends ", from.numel());
  to.view({-1}).copy_(from.view({-1}));
}

void CheckSame(const std::vector<ThreadCall>& calls) {
  const std::string first = Describe(calls[0]);
  for (size_t rank = 1; rank < calls.size(); ++rank) {
    const std::string other = Describe(calls[rank]);
    TORCH_CHECK_VALUE(first == other && calls[0].op == calls[rank].op, "rank 0 called ", first, ", but rank ", rank,
                      " called ", other);
  }
}

void AllReduce(std::vector<ThreadCall>& calls) {
  for (size_t i = 0; i < calls[0].inputs.size(); ++i) {
    const at::Tensor sum = Reduced(calls, i);
    for (ThreadCall& call : calls) call.inputs[i].copy_(sum);
  }
}

void AllToAll(std::vector<ThreadCall>& calls) {
  for (size_t to = 0; to < calls.size(); ++to) {
    for (size_t from = 0; from < calls.size(); ++from) {
      Copy(calls[to].outputs[from], calls[from].inputs[to], to, from);
    }
  }
}

}  // namespace

std::string Describe(const ThreadCall& call) {
  std::string text = c10d::opTypeToString(call.type);
  if (call.root >= 0) absl::StrAppend(&text, " from ", call.root);
  if (call.subject.defined()) {
    absl::StrAppend(&text, " of ", c10::toString(call.subject.scalar_type()), " [",
                    absl::StrJoin(call.subject.sizes(), ", "), "]");
  }
  return text;
}

void CheckReduction(const ThreadCall& call) {
  for (const at::Tensor& tensor : call.inputs) {
    const c10::ScalarType dtype = tensor.scalar_type();
    const bool has_arithmetic = dtype == c10::kHalf || dtype == c10::kBFloat16 || dtype == c10::kFloat ||
                                dtype == c10::kDouble || dtype == c10::kBool || dtype == c10::kByte ||
                                dtype == c10::kChar || dtype == c10::kShort || dtype == c10::kInt ||
                                dtype == c10::kLong || dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
    TORCH_CHECK_NOT_IMPLEMENTED(has_arithmetic, c10d::opTypeToString(call.type), " of ", c10::toString(dtype),
                                " is not implemented between threads");
  }
}

void CarryOut(std::vector<ThreadCall>& calls) {
  const at::NoGradGuard no_grad;
  CheckSame(calls);
  const int64_t root = calls[0].root;
  switch (calls[0].type) {
    case OpType::BROADCAST:
      for (ThreadCall& call : calls) call.inputs[0].copy_(calls[root].inputs[0]);
      return;
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      AllReduce(calls);
      return;
    case OpType::REDUCE:
      calls[root].inputs[0].copy_(Reduced(calls, 0));
      return;
    case OpType::ALLGATHER:
    case OpType::_ALLGATHER_BASE:
      for (size_t to = 0; to < calls.size(); ++to) {
        for (size_t from = 0; from < calls.size(); ++from) {
          Copy(calls[to].outputs[from], calls[from].inputs[0], to, from);
        }
      }
      return;
    case OpType::REDUCE_SCATTER:
    case OpType::_REDUCE_SCATTER_BASE:
      for (size_t to = 0; to < calls.size(); ++to) Copy(calls[to].outputs[0], Reduced(calls, to), to, to);
      return;
    case OpType::ALLTOALL:
    case OpType::ALLTOALL_BASE:
      AllToAll(calls);
      return;
    case OpType::GATHER:
      for (size_t from = 0; from < calls.size(); ++from) {
        Copy(calls[root].outputs[from], calls[from].inputs[0], root, from);
      }
      return;
    case OpType::SCATTER:
      for (size_t to = 0; to < calls.size(); ++to) Copy(calls[to].outputs[0], calls[root].inputs[to], to, root);
      return;
    default:
      return;
  }
}

}  // namespace lockstep::comm::testing
