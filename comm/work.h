// An asynchronous call of a process group.

#ifndef LOCKSTEP_COMM_WORK_H_
#define LOCKSTEP_COMM_WORK_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/internal/call.h"
#include "lockstep/comm/internal/layouts.h"

namespace c10d {
class Work;
}

namespace lockstep::comm {

class ProcessGroup;

namespace internal {
class GroupState;
}

// The result of an asynchronous call. Movable. It keeps the tensors and everything else that the call needs alive. If a
// call could not start, it returns a Work too, and Wait() returns the error. If you drop a Work without waiting, the
// call continues, but its error is lost, and so is the result in a tensor that is not contiguous.
//
//   comm::Work work = group.AllReduceAsync(gradient);
//   ...                                             // compute
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
//
// Only one thread at a time may use a Work.
class Work {
 public:
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  // Blocks until the tensors may be used, at most for the group's timeout. On the CPU that is when the call is done. On
  // CUDA it makes the current stream wait for the call. The error names this rank, the call and its number. Further
  // calls return the same.
  absl::Status Wait();

  // Blocks this thread until the call is done, on CUDA too. DeadlineExceeded: `deadline` or the group's timeout passed
  // first. Like any error, this fails the group.
  absl::Status WaitHost(absl::Time deadline);

  // Returns whether Wait() would return at once.
  bool IsCompleted() const;

  // "all_reduce #12", or "all_reduce #12 in group \"rows\"" in a sub-group, as in the call's errors and traces. Empty
  // if the call was rejected because the group had failed.
  std::string id() const;

  // For a receive from any rank: the sender's rank. -1 before Wait(), and for other calls.
  int SourceRank() const { return source_; }

 private:
  friend class ProcessGroup;

  explicit Work(absl::Status error);
  Work(absl::Status error, internal::Call call, std::shared_ptr<internal::GroupState> group);
  Work(c10::intrusive_ptr<c10d::Work> work, internal::Call call, std::shared_ptr<internal::GroupState> group);

  // Copies them when the call is done.
  Work With(internal::Results results) &&;
  absl::Status WaitAtMost(absl::Duration limit);

  c10::intrusive_ptr<c10d::Work> work_;
  internal::Call call_;
  std::shared_ptr<internal::GroupState> group_;
  absl::Status status_;
  internal::Results results_;
  int source_ = -1;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WORK_H_
