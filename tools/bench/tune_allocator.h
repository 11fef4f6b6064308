// --tuned_allocator of the programs here.

#ifndef LOCKSTEP_TOOLS_BENCH_TUNE_ALLOCATOR_H_
#define LOCKSTEP_TOOLS_BENCH_TUNE_ALLOCATOR_H_

#include <malloc.h>

#include "absl/status/status.h"

namespace lockstep {

// Keeps freed memory in the process: what MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_ are to the
// peers, by TUNED in measuring.py.
inline absl::Status TuneAllocator() {
  if (mallopt(M_MMAP_THRESHOLD, 32 << 20) && mallopt(M_TRIM_THRESHOLD, 1 << 30) && mallopt(M_TOP_PAD, 64 << 20)) {
    return absl::OkStatus();
  }
  return absl::InternalError("mallopt refused a threshold");
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_BENCH_TUNE_ALLOCATOR_H_
