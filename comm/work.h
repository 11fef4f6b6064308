// A collective that is under way.

#ifndef LOCKSTEP_COMM_WORK_H_
#define LOCKSTEP_COMM_WORK_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/comm/internal/call.h"

namespace c10d {
class Work;
}

namespace lockstep::comm {

namespace internal {
class GroupState;
}

// What an asynchronous call returns. Movable; it keeps the tensors and what else it needs alive. A call that could not
// even start is a Work too, whose Wait() says why. Dropping a Work without waiting loses its error, not the call.
//
//   comm::Work work = group.AllReduceAsync(gradient);
//   ...                                             // compute
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
//
// One thread at a time may use a Work.
class Work {
 public:
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  // Blocks until the tensors may be used: on the CPU until the call is done, on CUDA it orders the current stream
  // after it. By the group's timeout at the latest. The error names this rank, the call and its sequence number.
  // Returns the same however often called.
  absl::Status Wait();

  // Blocks this thread until the call is done, on CUDA too; DeadlineExceeded when `deadline` or the group's timeout
  // passes first, which fails the group as any error does.
  absl::Status WaitHost(absl::Time deadline);

  // Whether Wait() would return at once.
  bool IsCompleted() const;

  // "all_reduce #12", or "all_reduce #12 in group \"rows\"" in a sub-group: what the call's errors and traces name too.
  // Empty if the call was refused because the group had failed.
  std::string id() const;

  // The rank that a receive from any rank got its tensor from; -1 before Wait(), or of another call.
  int SourceRank() const { return source_; }

  // Made by ProcessGroup.
  explicit Work(absl::Status error);
  Work(absl::Status error, internal::Call call, std::shared_ptr<internal::GroupState> group);
  Work(c10::intrusive_ptr<c10d::Work> work, internal::Call call, std::shared_ptr<internal::GroupState> group);

 private:
  absl::Status WaitAtMost(absl::Duration limit);

  c10::intrusive_ptr<c10d::Work> work_;
  internal::Call call_;
  std::shared_ptr<internal::GroupState> group_;
  absl::Status status_;
  int source_ = -1;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WORK_H_
