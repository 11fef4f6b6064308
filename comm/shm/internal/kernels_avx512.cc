// GCC and clang compile what follows the pragma for AVX-512; another compiler leaves this version out.
#if defined(__x86_64__) && defined(__GNUC__)
#if !defined(__clang__)
// GCC 12's own header of AVX-512 has undefined registers whose value does not matter.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lockstep/comm/shm/reduce.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx2,f16c")
#endif
#define LOCKSTEP_SHM_AVX2 1
#define LOCKSTEP_SHM_AVX512 1
#endif

#include "lockstep/comm/shm/internal/kernels.h"

namespace lockstep::comm::shm::internal {

#if defined(LOCKSTEP_SHM_AVX512)
ReduceFunction Avx512Kernel(DType dtype, Op op) {
  if (dtype == DType::kFloat16) return PairKernel<Halves>(op);
  return dtype == DType::kBFloat16 ? PairKernel<Brains>(op) : nullptr;
}
#else
ReduceFunction Avx512Kernel(DType, Op) { return nullptr; }
#endif

}  // namespace lockstep::comm::shm::internal

#if defined(LOCKSTEP_SHM_AVX2) && defined(__clang__)
#pragma clang attribute pop
#endif
