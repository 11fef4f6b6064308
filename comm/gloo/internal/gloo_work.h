#ifndef LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_WORK_H_
#define LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_WORK_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lockstep::comm::internal {

// State shared by the calls of one Gloo backend. With it, abort() can end every wait at once, although Gloo's own waits
// cannot be ended. Thread-safe.
class GlooCalls {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  explicit GlooCalls(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // Ends all waits, present and future, with an error that contains `why`.
  void Abort(const std::string& why = "the group was aborted");

  // Abort() for a Gloo that has lost a thread and may hold locks forever. It must not be used any more.
  void Break(const std::string& why);
  bool broken() const;

  // Returns whether a collective is under way.
  bool Busy() const;

  std::chrono::milliseconds Limit(std::chrono::milliseconds timeout) const {
    return timeout.count() > 0 ? std::min(timeout, timeout_) : timeout_;
  }

 private:
  friend class CollectiveWork;
  friend class PointToPointWork;

  void AbortLocked(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[noreturn]] void ThrowAbortedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::chrono::milliseconds timeout_;
  mutable absl::Mutex mutex_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  std::string why_ ABSL_GUARDED_BY(mutex_);  // reason of the abort
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<c10d::Work*> waiting_ ABSL_GUARDED_BY(mutex_);  // sends and receives that a thread waits for
  std::vector<WorkPtr> dropped_ ABSL_GUARDED_BY(mutex_);   // of destroyed Works: Gloo still uses their memory
};

// A collective of Gloo's. Its wait() waits for a completion callback, not for Gloo. `after` runs on Gloo's thread when
// Gloo is done, whether or not a thread waits.
class CollectiveWork : public c10d::Work {
 public:
  static c10::intrusive_ptr<c10d::Work> Create(int rank, c10d::OpType type, std::shared_ptr<GlooCalls> calls,
                                               const c10::intrusive_ptr<c10d::Work>& gloo, std::function<void()> after);
  // Use Create().
  CollectiveWork(int rank, c10d::OpType type, std::shared_ptr<GlooCalls> calls)
      : Work(rank, type), calls_(std::move(calls)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;

 private:
  void Done(std::exception_ptr error);

  const std::shared_ptr<GlooCalls> calls_;
  bool done_ = false;  // these two are guarded by calls_->mutex_
  std::exception_ptr error_;
};

// A send or receive of Gloo's. abort() can end its wait.
class PointToPointWork : public c10d::Work {
 public:
  PointToPointWork(int rank, c10d::OpType type, std::shared_ptr<GlooCalls> calls, c10::intrusive_ptr<c10d::Work> gloo)
      : Work(rank, type), calls_(std::move(calls)), gloo_(std::move(gloo)) {}
  ~PointToPointWork() override;

  bool wait(std::chrono::milliseconds timeout) override;
  int sourceRank() const override { return gloo_->sourceRank(); }

 private:
  const std::shared_ptr<GlooCalls> calls_;
  const c10::intrusive_ptr<c10d::Work> gloo_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_GLOO_INTERNAL_GLOO_WORK_H_
