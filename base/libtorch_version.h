// The releases of LibTorch that Lockstep supports. libtorch_compatibility.h hides their differences. Where only one
// source meets a difference, that source tests LOCKSTEP_LIBTORCH_AT_LEAST.

#ifndef LOCKSTEP_BASE_LIBTORCH_VERSION_H_
#define LOCKSTEP_BASE_LIBTORCH_VERSION_H_

#include <torch/version.h>

#define LOCKSTEP_LIBTORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !LOCKSTEP_LIBTORCH_AT_LEAST(2, 7)
#error "Lockstep needs LibTorch 2.7 or newer. LOCKSTEP_LIBTORCH names the LibTorch that is used."
#endif

#endif  // LOCKSTEP_BASE_LIBTORCH_VERSION_H_
