#include "lockstep/comm/shm/dtype.h"

namespace lockstep::comm::shm {

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kBytes:
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kUInt32:
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kUInt64:
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 1;
}

const char* NameOf(DType dtype) {
  constexpr const char* kNames[] = {"bytes",   "bool",    "uint8",     "uint16",    "uint32",  "uint64",
                                    "int8",    "int16",   "int32",     "int64",     "float16", "bfloat16",
                                    "float32", "float64", "complex64", "complex128"};
  const auto index = static_cast<size_t>(dtype);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "unknown dtype";
}

const char* NameOf(Op op) {
  constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  const auto index = static_cast<size_t>(op);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "unknown op";
}

}  // namespace lockstep::comm::shm
