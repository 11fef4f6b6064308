#include "lockstep/comm/shm/reduce.h"

#include "lockstep/comm/shm/internal/kernels.h"

namespace lockstep::comm::shm {
namespace {

// Every processor with AVX2 has F16C.
bool HasAvx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

bool HasAvx512() {
#if defined(__x86_64__)
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

}  // namespace

ReduceFunction ReduceFunctionFor(DType dtype, Op op) {
  static const bool avx2 = HasAvx2(), avx512 = HasAvx512();
  const ReduceFunction fastest = avx512 ? internal::Avx512Kernel(dtype, op) : nullptr;
  if (fastest) return fastest;
  const ReduceFunction fast = avx2 ? internal::Avx2Kernel(dtype, op) : nullptr;
  return fast ? fast : internal::BaselineKernel(dtype, op);
}

TreeSumFunction TreeSumFunctionFor(DType dtype) {
  static const bool avx2 = HasAvx2();
  const TreeSumFunction fast = avx2 ? internal::Avx2TreeSum(dtype) : nullptr;
  return fast ? fast : internal::BaselineTreeSum(dtype);
}

}  // namespace lockstep::comm::shm
