#ifndef LOCKSTEP_COMM_SHM_INTERNAL_FUTEX_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "absl/time/time.h"

namespace lockstep::comm::shm::internal {

// Sleeps while `word` is `value`, for `longest` at most. `word` may be shared with other processes.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t value, absl::Duration longest) {
  const timespec timeout = absl::ToTimespec(longest);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &timeout, nullptr, 0);
}

inline void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Lets a polling processor rest for some tens of nanoseconds.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_FUTEX_H_
