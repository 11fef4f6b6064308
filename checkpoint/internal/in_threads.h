// One piece of work shared by several threads.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_IN_THREADS_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_IN_THREADS_H_

#include <cstddef>
#include <functional>

namespace lockstep::checkpoint::internal {

// Runs `work` on `count` threads at a time, including the caller's, and returns when all have ended. If the system
// refuses threads, there are fewer. So `work` must take parts from a shared list until none is left. It must not throw.
void InThreads(size_t count, const std::function<void()>& work);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_IN_THREADS_H_
