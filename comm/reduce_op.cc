#include "lockstep/comm/reduce_op.h"

#include "absl/strings/str_cat.h"

namespace lockstep::comm {
namespace {

absl::Status Refusal(const char* what, c10::ScalarType dtype) {
  return absl::InvalidArgumentError(absl::StrCat(what, ", found ", c10::toString(dtype)));
}

}  // namespace

const char* NameOf(ReduceOp op) {
  static constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"};
  return kNames[static_cast<int>(op)];
}

absl::Status CheckReduceOp(ReduceOp op, c10::ScalarType dtype) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProduct:
      return absl::OkStatus();
    case ReduceOp::kAvg:
      if (c10::isFloatingType(dtype) || c10::isComplexType(dtype)) return absl::OkStatus();
      return Refusal("an average needs a floating-point or complex tensor", dtype);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      if (!c10::isComplexType(dtype)) return absl::OkStatus();
      return Refusal("a minimum or maximum needs numbers that have an order", dtype);
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      if (c10::isIntegralType(dtype, /*includeBool=*/true)) return absl::OkStatus();
      return Refusal("a bitwise reduction needs an integer or bool tensor", dtype);
  }
  return absl::InvalidArgumentError(absl::StrCat("no such ReduceOp: ", static_cast<int>(op)));
}

}  // namespace lockstep::comm
