#ifndef LOCKSTEP_DP_INTERNAL_WORKERS_H_
#define LOCKSTEP_DP_INTERNAL_WORKERS_H_

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lockstep::dp::internal {

// Threads that live as long as this object, since LibTorch and OpenMP set up a lot for each thread. Threads for the CPU
// divide the creator's intra-op threads among them, so that together they use as many as the creator alone. If the
// system refuses some threads, Run()'s caller does their part.
class Workers {
 public:
  // `on_cpu`: their operations run on the CPU. Blocks until all run, and warns if there are fewer than `count`.
  Workers(size_t count, bool on_cpu);
  ~Workers();

  // The largest `count` of Run().
  size_t size() const { return to_do_.size(); }

  // at::get_num_threads() of the thread that created them.
  int intra_op_threads() const { return intra_op_threads_; }

  // Calls f(i) for each i below `count`, which is at most size(), each on a thread, and blocks until all have
  // returned. f must not throw. One thread calls this at a time.
  void Run(size_t count, const std::function<void(size_t)>& f);

 private:
  void Loop(size_t index, int intra_op_threads);

  const int intra_op_threads_;
  absl::Mutex mutex_;
  const std::function<void(size_t)>* job_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<char> to_do_;                     // by thread; guarded by the mutex, except for its size
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;  // threads
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_WORKERS_H_
