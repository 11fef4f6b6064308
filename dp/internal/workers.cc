#include "lockstep/dp/internal/workers.h"

#include <ATen/Parallel.h>

#include <algorithm>

namespace lockstep::dp::internal {
namespace {

bool IsZero(size_t* number) { return *number == 0; }

}  // namespace

// LibTorch's number of threads is one for each thread and, besides, one for threads to come, which is left as it was.
Workers::Workers(size_t count, bool on_cpu) : intra_op_threads_(at::get_num_threads()), to_do_(count), running_(count) {
  const int each = std::max<int>(1, intra_op_threads_ / static_cast<int>(std::max<size_t>(count, 1)));
  for (size_t i = 0; i < count; ++i) threads_.emplace_back(&Workers::Loop, this, i, on_cpu ? each : 0);
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&IsZero, &running_));
  if (on_cpu) at::set_num_threads(intra_op_threads_);
}

Workers::~Workers() {
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void Workers::Run(size_t count, const std::function<void(size_t)>& f) {
  const absl::MutexLock lock(&mutex_);
  job_ = &f;
  running_ = count;
  std::fill_n(to_do_.begin(), count, true);
  mutex_.Await(absl::Condition(&IsZero, &running_));
}

void Workers::Loop(size_t index, int intra_op_threads) {
  at::get_num_threads();  // a thread's first call sets it up, to what is for threads to come
  if (intra_op_threads > 0) at::set_num_threads(intra_op_threads);
  const auto is_called = [this, index]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return to_do_[index] || stopped_; };
  absl::MutexLock lock(&mutex_);
  --running_;
  while (true) {
    mutex_.Await(absl::Condition(&is_called));
    if (stopped_) return;
    to_do_[index] = false;
    const std::function<void(size_t)>& job = *job_;
    mutex_.Unlock();
    job(index);
    mutex_.Lock();
    --running_;
  }
}

}  // namespace lockstep::dp::internal
