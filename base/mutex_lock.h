// absl::MutexLock for every release of Abseil: it took a pointer until 2025, and takes a reference since.

#ifndef LOCKSTEP_BASE_MUTEX_LOCK_H_
#define LOCKSTEP_BASE_MUTEX_LOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lockstep {

// Holds the mutex as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(absl::Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  absl::Mutex& mutex_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_MUTEX_LOCK_H_
