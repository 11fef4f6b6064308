#include "lockstep/base/testing/thread_budget.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace lockstep::testing {
namespace {

std::atomic<int> budget{INT_MAX};

}  // namespace

ThreadBudget::ThreadBudget(int threads) { budget = threads; }
ThreadBudget::~ThreadBudget() { budget = INT_MAX; }

bool TakeFromBudget() {
  int left = budget;
  while (left > 0 && left < INT_MAX && !budget.compare_exchange_weak(left, left - 1)) {
  }
  return left > 0;
}

}  // namespace lockstep::testing

// The program's own definition comes before the C library's, for shared libraries too.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return lockstep::testing::TakeFromBudget() ? create(thread, attributes, run, argument) : EAGAIN;
}
