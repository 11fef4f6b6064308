// GCC and clang compile what follows the pragma for AVX2; another compiler leaves this version out.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/comm/shm/reduce.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif
#define LOCKSTEP_SHM_AVX2 1
#endif

#include "lockstep/comm/shm/internal/kernels.h"

namespace lockstep::comm::shm::internal {

#if defined(LOCKSTEP_SHM_AVX2)
ReduceFunction Avx2Kernel(DType dtype, Op op) { return KernelHere(dtype, op); }
TreeSumFunction Avx2TreeSum(DType dtype) { return TreeSumHere(dtype); }
#else
ReduceFunction Avx2Kernel(DType, Op) { return nullptr; }
TreeSumFunction Avx2TreeSum(DType) { return nullptr; }
#endif

}  // namespace lockstep::comm::shm::internal

#if defined(LOCKSTEP_SHM_AVX2) && defined(__clang__)
#pragma clang attribute pop
#endif
