// absl::MutexLock, and the mutex's Lock and Unlock, for every release of Abseil. Their names and arguments changed in
// 2025.

#ifndef LOCKSTEP_BASE_MUTEX_LOCK_H_
#define LOCKSTEP_BASE_MUTEX_LOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lockstep {
namespace mutex_lock_internal {

// Newer releases have lock() and deprecate Lock().
template <typename Mutex>
ABSL_NO_THREAD_SAFETY_ANALYSIS auto Lock(Mutex& mutex, int) -> decltype(mutex.lock()) {
  mutex.lock();
}
template <typename Mutex>
ABSL_NO_THREAD_SAFETY_ANALYSIS void Lock(Mutex& mutex, long) {
  mutex.Lock();
}

template <typename Mutex>
ABSL_NO_THREAD_SAFETY_ANALYSIS auto Unlock(Mutex& mutex, int) -> decltype(mutex.unlock()) {
  mutex.unlock();
}
template <typename Mutex>
ABSL_NO_THREAD_SAFETY_ANALYSIS void Unlock(Mutex& mutex, long) {
  mutex.Unlock();
}

}  // namespace mutex_lock_internal

inline void LockMutex(absl::Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  mutex_lock_internal::Lock(mutex, 0);
}
inline void UnlockMutex(absl::Mutex& mutex) ABSL_UNLOCK_FUNCTION(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  mutex_lock_internal::Unlock(mutex, 0);
}

// Holds the mutex as long as it lives.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(absl::Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { LockMutex(mutex_); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { UnlockMutex(mutex_); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  absl::Mutex& mutex_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_MUTEX_LOCK_H_
