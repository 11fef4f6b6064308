#ifndef LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_AVX2_H_
#define LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_AVX2_H_

#include "lockstep/data/internal/resample_kernels.h"

namespace lockstep::data {

// Null where this processor has no AVX2.
const ResampleKernels* Avx2ResampleKernels();

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_INTERNAL_RESAMPLE_KERNELS_AVX2_H_
