// Threads that the system refuses, for tests. RLIMIT_NPROC does not apply to root, and tests may run as root.

#ifndef LOCKSTEP_BASE_TESTING_THREAD_BUDGET_H_
#define LOCKSTEP_BASE_TESTING_THREAD_BUDGET_H_

namespace lockstep::testing {

// While one is in scope this process can have `threads` more threads at a time: pthread_create() then fails with
// EAGAIN, whichever library calls it. At most one budget at a time.
class ThreadBudget {
 public:
  explicit ThreadBudget(int threads);
  ~ThreadBudget();
  ThreadBudget(const ThreadBudget&) = delete;
  ThreadBudget& operator=(const ThreadBudget&) = delete;
};

}  // namespace lockstep::testing

#endif  // LOCKSTEP_BASE_TESTING_THREAD_BUDGET_H_
