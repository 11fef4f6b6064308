// A backend whose ranks are threads of one process. For tests; it takes CPU tensors and does broadcast, all_reduce,
// all_gather and barrier.

#ifndef LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_
#define LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/time/time.h"

namespace lockstep::comm::testing {

// Where the threads meet. The last rank to call a collective carries it out, for all, in rank order: the result is the
// same bits whatever the timing. Ranks that call different collectives at one place in the order all get an error that
// names both.
class ThreadHub {
 public:
  ThreadHub(int size, absl::Duration timeout);
  ~ThreadHub();

  int size() const;

  // This rank takes part in no further collective; those that wait for it, now or later, fail saying `reason`.
  void Leave(int rank, const std::string& reason);

  class Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

c10::intrusive_ptr<c10d::Backend> MakeThreadBackend(const ThreadHub& hub, int rank);

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_THREAD_BACKEND_H_
