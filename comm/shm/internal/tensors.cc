#include "lockstep/comm/shm/internal/tensors.h"

#include <c10/util/Exception.h>

#include <numeric>

#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::shm::internal {
namespace {

Op ToOp(const char* operation, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Op::kSum;
    case c10d::ReduceOp::AVG:
      return Op::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return Op::kProduct;
    case c10d::ReduceOp::MIN:
      return Op::kMin;
    case c10d::ReduceOp::MAX:
      return Op::kMax;
    case c10d::ReduceOp::BAND:
      return Op::kBand;
    case c10d::ReduceOp::BOR:
      return Op::kBor;
    case c10d::ReduceOp::BXOR:
      return Op::kBxor;
    case c10d::ReduceOp::PREMUL_SUM:
      return Op::kPremulSum;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "shm: ", operation, " has no reduction ", static_cast<int>(op.op_));
  }
}

}  // namespace

DType DTypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
      return DType::kBool;
    case at::kByte:
      return DType::kUInt8;
    case at::kUInt16:
      return DType::kUInt16;
    case at::kUInt32:
      return DType::kUInt32;
    case at::kUInt64:
      return DType::kUInt64;
    case at::kChar:
      return DType::kInt8;
    case at::kShort:
      return DType::kInt16;
    case at::kInt:
      return DType::kInt32;
    case at::kLong:
      return DType::kInt64;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kFloat:
      return DType::kFloat32;
    case at::kDouble:
      return DType::kFloat64;
    case at::kComplexFloat:
      return DType::kComplex64;
    case at::kComplexDouble:
      return DType::kComplex128;
    default:
      return DType::kBytes;
  }
}

Op OpFor(const char* operation, const c10d::ReduceOp& op, const at::Tensor& tensor) {
  const Op known = ToOp(operation, op);
  TORCH_CHECK_NOT_IMPLEMENTED(ReduceFunctionFor(DTypeOf(tensor), known), "shm: ", operation, " has no ", NameOf(known),
                              " of ", tensor.scalar_type(), " tensors");
  return known;
}

double FactorOf(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return 1;
  // Named after NCCL, which had it first; nothing of it is NCCL's.
  const auto& supplement = static_cast<const c10d::NCCLPreMulSumSupplement&>(*op.supplement_);
  return supplement.tensor_factor.defined() ? supplement.tensor_factor.item<double>() : supplement.double_factor;
}

Buffer BufferOf(const char* operation, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.layout() == at::kStrided && tensor.is_contiguous() && tensor.is_cpu(),
                    "shm: ", operation, " needs dense contiguous CPU tensors");
  return {static_cast<char*>(tensor.data_ptr()), tensor.nbytes()};
}

Buffers Cut(const char* operation, const at::Tensor& tensor, int count, const std::vector<int64_t>& splits) {
  const Buffer whole = BufferOf(operation, tensor);
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(tensor.numel() % count == 0, "shm: ", operation, ": ", tensor.numel(),
                      " elements cannot be cut into ", count, " equal parts");
  } else {
    TORCH_CHECK_VALUE(
        static_cast<int>(splits.size()) == count && std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
        "shm: ", operation, ": the split sizes [", splits, "] are not for ", count, " ranks and ", rows, " rows");
  }
  const size_t row_bytes = rows == 0 ? 0 : whole.bytes / rows;
  Buffers parts;
  char* next = whole.data;
  for (int i = 0; i < count; ++i) {
    parts.push_back({next, splits.empty() ? whole.bytes / count : splits[i] * row_bytes});
    next += parts.back().bytes;
  }
  return parts;
}

}  // namespace lockstep::comm::shm::internal
