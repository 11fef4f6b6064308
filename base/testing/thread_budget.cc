#include "lockstep/base/testing/thread_budget.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <memory>
#include <new>

namespace lockstep::testing {
namespace {

std::atomic<int> budget{INT_MAX};

}  // namespace

ThreadBudget::ThreadBudget(int threads) { budget = threads; }
ThreadBudget::~ThreadBudget() { budget = INT_MAX; }

namespace {

struct Thread {
  void* (*run)(void*);
  void* argument;
};

bool TakeFromBudget() {
  int left = budget;
  while (left > 0 && left < INT_MAX && !budget.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

void GiveBack() {
  int left = budget;
  while (left < INT_MAX && !budget.compare_exchange_weak(left, left + 1)) {
  }
}

void* RunAndGiveBack(void* argument) {
  const std::unique_ptr<Thread> thread(static_cast<Thread*>(argument));
  void* const result = thread->run(thread->argument);
  GiveBack();
  return result;
}

}  // namespace
}  // namespace lockstep::testing

// The program's own definition comes before the C library's, for shared libraries too.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) {
  using lockstep::testing::Thread;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (lockstep::testing::budget == INT_MAX) return create(thread, attributes, run, argument);
  if (!lockstep::testing::TakeFromBudget()) return EAGAIN;
  auto* const made = new (std::nothrow) Thread{run, argument};
  return made ? create(thread, attributes, lockstep::testing::RunAndGiveBack, made) : EAGAIN;
}
