// The meeting point of ranks that are threads of one process.

#ifndef LOCKSTEP_COMM_TESTING_THREAD_HUB_H_
#define LOCKSTEP_COMM_TESTING_THREAD_HUB_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "absl/time/time.h"
#include "lockstep/comm/testing/thread_call.h"

namespace lockstep::comm::testing {

// The last rank to call a collective executes it for all, in rank order, so the result has the same bits whatever the
// timing. If ranks call different collectives at the same point, all get an error that names both. A send is done when
// its receive has come. All methods may be called from any thread.
class ThreadHub {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  ThreadHub(int size, absl::Duration timeout);
  ~ThreadHub();

  int size() const;

  // Ends this rank's participation. Calls that wait for it, now or later, fail with `reason`.
  void Leave(int rank, const std::string& reason);

  // Ends this rank's calls, now and later. The other ranks are not told.
  void Abort(int rank);

  class Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// One rank's handle on a hub, which it keeps alive.
class ThreadPort {
 public:
  ThreadPort(std::shared_ptr<ThreadHub::Impl> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int size() const;
  ThreadHub::WorkPtr Join(ThreadCall call) const;
  ThreadHub::WorkPtr Send(at::Tensor tensor, int to, int tag) const;
  ThreadHub::WorkPtr Receive(at::Tensor tensor, int from, int tag) const;  // from -1: any rank
  void Abort() const;
  void Leave(const std::string& reason) const;

 private:
  std::shared_ptr<ThreadHub::Impl> hub_;
  int rank_;
};

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_THREAD_HUB_H_
