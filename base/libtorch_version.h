// The releases of LibTorch that Lockstep supports. What differs between them is in libtorch_compatibility.h,
// or beside LOCKSTEP_LIBTORCH_AT_LEAST where only one source needs it.

#ifndef LOCKSTEP_BASE_LIBTORCH_VERSION_H_
#define LOCKSTEP_BASE_LIBTORCH_VERSION_H_

#include <torch/version.h>

#define LOCKSTEP_LIBTORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !LOCKSTEP_LIBTORCH_AT_LEAST(2, 7)
#error "Lockstep needs LibTorch 2.7 or newer. LOCKSTEP_LIBTORCH names the LibTorch that is used."
#endif

#endif  // LOCKSTEP_BASE_LIBTORCH_VERSION_H_
