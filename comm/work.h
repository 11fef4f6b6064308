// A collective that is under way.

#ifndef LOCKSTEP_COMM_WORK_H_
#define LOCKSTEP_COMM_WORK_H_

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace c10d {
class Work;
}

namespace lockstep::comm {

namespace internal {
class GroupFailure;
}

// What an asynchronous collective returns. Movable; may outlive nothing: it keeps the tensors and what else it needs
// alive. A collective that could not even start is a Work too, whose Wait() says why. Dropping a Work without waiting
// loses its error, not the collective.
//
//   comm::Work work = group.AllReduceAsync(gradient);
//   ...                                             // compute
//   LOCKSTEP_RETURN_IF_ERROR(work.Wait());
class Work {
 public:
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  // Blocks until the tensors may be used: on the CPU until the collective is done, on CUDA it orders the current stream
  // after it. By the group's timeout at the latest. The error names this rank, the collective and its sequence number.
  // Returns the same however often called.
  absl::Status Wait();

  // Whether Wait() would return at once.
  bool IsCompleted() const;

  // Made by ProcessGroup. `after` runs once in Wait() when the collective has succeeded.
  explicit Work(absl::Status error);
  Work(c10::intrusive_ptr<c10d::Work> work, std::string name, std::shared_ptr<internal::GroupFailure> failure,
       std::function<void()> after);

 private:
  c10::intrusive_ptr<c10d::Work> work_;  // null once waited for
  std::string name_;
  std::shared_ptr<internal::GroupFailure> failure_;
  std::function<void()> after_;
  absl::Status status_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WORK_H_
