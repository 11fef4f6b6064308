// One piece of work shared by several threads.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_IN_THREADS_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_IN_THREADS_H_

#include <cstddef>
#include <functional>

namespace lockstep::checkpoint::internal {

// Runs `work` in `count` threads at a time, the caller's being one, and returns when all have ended. Where the system
// gives no more threads there are fewer; so each takes the next part that nobody has, until none is left. `work` must
// not throw.
void InThreads(size_t count, const std::function<void()>& work);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_IN_THREADS_H_
