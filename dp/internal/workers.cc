#include "lockstep/dp/internal/workers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/logging.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/thread.h"

namespace lockstep::dp::internal {
namespace {

bool IsZero(size_t* number) { return *number == 0; }

}  // namespace

// LibTorch keeps a number of threads for each thread, and one for future threads, which is restored here.
Workers::Workers(size_t count, bool on_cpu) : intra_op_threads_(at::get_num_threads()), to_do_(count) {
  const int each = std::max<int>(1, intra_op_threads_ / static_cast<int>(std::max<size_t>(count, 1)));
  const MutexLock lock(mutex_);
  while (threads_.size() < count) {
    absl::StatusOr<std::thread> thread =
        StartThread("a replica's thread", [this, i = threads_.size(), on_cpu, each] { Loop(i, on_cpu ? each : 0); });
    if (!thread.ok()) {
      LOG(WARNING) << "dp: only " << threads_.size() << " of " << count
                   << " replicas run at the same time as their caller: " << thread.status().message();
      break;
    }
    threads_.push_back(*std::move(thread));
    ++running_;
  }
  mutex_.Await(absl::Condition(&IsZero, &running_));
  if (on_cpu) at::set_num_threads(intra_op_threads_);
}

Workers::~Workers() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Run(size_t count, const std::function<void(size_t)>& f) {
  const size_t on_threads = std::min(count, threads_.size());
  {
    const MutexLock lock(mutex_);
    job_ = &f;
    running_ = on_threads;
    std::fill_n(to_do_.begin(), on_threads, true);
  }
  for (size_t i = on_threads; i < count; ++i) f(i);
  const MutexLock lock(mutex_);
  mutex_.Await(absl::Condition(&IsZero, &running_));
}

void Workers::Loop(size_t index, int intra_op_threads) {
  at::get_num_threads();  // a thread's first call sets the number for future threads
  if (intra_op_threads > 0) at::set_num_threads(intra_op_threads);
  const auto is_called = [this, index]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return to_do_[index] || stopped_; };
  MutexLock lock(mutex_);
  --running_;
  while (true) {
    mutex_.Await(absl::Condition(&is_called));
    if (stopped_) return;
    to_do_[index] = false;
    const std::function<void(size_t)>& job = *job_;
    UnlockMutex(mutex_);
    job(index);
    LockMutex(mutex_);
    --running_;
  }
}

}  // namespace lockstep::dp::internal
