// GCC compiles what follows for AVX2; another compiler leaves this version out.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#pragma GCC target("avx2,f16c")
#define LOCKSTEP_SHM_AVX2 1
#endif

#include "lockstep/comm/shm/internal/kernels.h"

namespace lockstep::comm::shm::internal {

#if defined(LOCKSTEP_SHM_AVX2)
ReduceFunction Avx2Kernel(DType dtype, Op op) { return KernelHere(dtype, op); }
#else
ReduceFunction Avx2Kernel(DType, Op) { return nullptr; }
#endif

}  // namespace lockstep::comm::shm::internal
