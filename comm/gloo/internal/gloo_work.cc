#include "lockstep/comm/gloo/internal/gloo_work.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>

#include <utility>

#include "absl/time/time.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/comm/internal/sigpipe.h"

namespace lockstep::comm::internal {

void GlooCalls::ThrowAbortedLocked() const { throw c10::DistBackendError({__func__, __FILE__, __LINE__}, why_); }

void GlooCalls::AbortLocked(const std::string& why) {
  if (!std::exchange(aborted_, true)) why_ = why;
  for (c10d::Work* work : waiting_) work->abort();
}

void GlooCalls::Abort(const std::string& why) {
  MutexLock lock(mutex_);
  AbortLocked(why);
}

void GlooCalls::Break(const std::string& why) {
  MutexLock lock(mutex_);
  broken_ = true;
  AbortLocked(why);
}

bool GlooCalls::broken() const {
  MutexLock lock(mutex_);
  return broken_;
}

bool GlooCalls::Busy() const {
  MutexLock lock(mutex_);
  return under_way_ > 0;
}

c10::intrusive_ptr<c10d::Work> CollectiveWork::Create(int rank, c10d::OpType type, std::shared_ptr<GlooCalls> calls,
                                                      const c10::intrusive_ptr<c10d::Work>& gloo,
                                                      std::function<void()> after) {
  auto work = c10::make_intrusive<CollectiveWork>(rank, type, std::move(calls));
  {
    MutexLock lock(work->calls_->mutex_);
    ++work->calls_->under_way_;
  }
  gloo->getFuture()->addCallback([work, after = std::move(after)](c10::ivalue::Future& future) {
    std::exception_ptr error = future.hasError() ? future.exception_ptr() : nullptr;
    try {
      const at::NoGradGuard no_grad;
      if (!error && after) after();
    } catch (...) {
      error = std::current_exception();
    }
    work->Done(error);
  });
  return work;
}

void CollectiveWork::Done(std::exception_ptr error) {
  MutexLock lock(calls_->mutex_);
  error_ = std::move(error);
  done_ = true;
  --calls_->under_way_;
}

bool CollectiveWork::isCompleted() {
  MutexLock lock(calls_->mutex_);
  return done_ || calls_->aborted_;
}

bool CollectiveWork::isSuccess() const {
  MutexLock lock(calls_->mutex_);
  return done_ && !error_;
}

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  const auto limit = calls_->Limit(timeout);
  const auto ended = [this] {
    calls_->mutex_.AssertHeld();
    return done_ || calls_->aborted_;
  };
  MutexLock lock(calls_->mutex_);
  const bool in_time = calls_->mutex_.AwaitWithTimeout(absl::Condition(&ended), absl::FromChrono(limit));
  TORCH_CHECK_WITH(DistBackendError, in_time, "timed out after ", limit.count(), " ms");
  if (!done_) calls_->ThrowAbortedLocked();
  if (error_) std::rethrow_exception(error_);
  return true;
}

PointToPointWork::~PointToPointWork() {
  MutexLock lock(calls_->mutex_);
  if (!completed_) calls_->dropped_.push_back(gloo_);
}

bool PointToPointWork::wait(std::chrono::milliseconds timeout) {
  {
    MutexLock lock(calls_->mutex_);
    if (calls_->aborted_) calls_->ThrowAbortedLocked();
    calls_->waiting_.insert(gloo_.get());
  }
  std::exception_ptr error;
  bool done = false;
  try {
    const BlockSigpipe block;
    done = gloo_->wait(calls_->Limit(timeout));
  } catch (...) {
    error = std::current_exception();
  }
  MutexLock lock(calls_->mutex_);
  calls_->waiting_.erase(gloo_.get());
  completed_ = done;
  if (calls_->aborted_ && !done) calls_->ThrowAbortedLocked();
  if (error) std::rethrow_exception(error);
  return done;
}

}  // namespace lockstep::comm::internal
