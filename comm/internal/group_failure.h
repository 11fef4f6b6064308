#ifndef LOCKSTEP_COMM_INTERNAL_GROUP_FAILURE_H_
#define LOCKSTEP_COMM_INTERNAL_GROUP_FAILURE_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace lockstep::comm::internal {

// The first error of a group's collectives. Once set, the group is failed: ranks may be out of step, so nothing further
// is sent.
class GroupFailure {
 public:
  void Record(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    first_.Update(status);
  }
  absl::Status first() const {
    absl::MutexLock lock(&mutex_);
    return first_;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_GROUP_FAILURE_H_
