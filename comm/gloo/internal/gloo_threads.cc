#include "lockstep/comm/gloo/internal/gloo_threads.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <chrono>
#include <exception>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/comm/internal/uncaught.h"

namespace lockstep::comm::internal {
namespace {

// A thread inherits its creator's timer slack, and Gloo leaves it alone. So it can say whose thread it is: nanoseconds
// from here on, a little more than Linux's default. Names are inherited too, but Gloo gives its own from LibTorch 2.15
// on.
constexpr int kFirstSlack = 50001;
constexpr int kSlacks = 10000;

// The calls whose threads have a timer slack. std::mutex: the threads that look here may be in the middle of anything.
struct Registry {
  std::mutex mutex;
  std::map<int, std::weak_ptr<GlooCalls>> calls;
  int started = 0;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

int Register(const std::shared_ptr<GlooCalls>& calls) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  for (auto entry = registry.calls.begin(); entry != registry.calls.end();) {
    entry = entry->second.expired() ? registry.calls.erase(entry) : std::next(entry);
  }
  const int slack = kFirstSlack + registry.started++ % kSlacks;
  registry.calls[slack] = calls;
  return slack;
}

// If a Gloo thread's group has been destroyed, no call waits for the thread.
bool IsOfGloo(int slack, std::shared_ptr<GlooCalls>& calls) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.calls.find(slack);
  if (found == registry.calls.end()) return false;
  calls = found->second.lock();
  return true;
}

bool EndGlooThread() {
  std::shared_ptr<GlooCalls> calls;
  if (!std::current_exception() || !IsOfGloo(prctl(PR_GET_TIMERSLACK), calls)) return false;
  if (calls) calls->Break(std::string(BackendStatus("").message()));
  return true;
}

}  // namespace

void StartGloo(const std::shared_ptr<GlooCalls>& calls, std::function<void()> make, const std::function<void()>& look) {
  SpareProcess(EndGlooThread);
  const int slack = Register(calls);
  const auto made = std::make_shared<std::promise<void>>();
  std::future<void> result = made->get_future();
  // `calls` live as long as the thread, which may be abandoned: so Gloo's threads are recognised.
  absl::StatusOr<std::thread> starter = StartThread("Gloo's threads", [made, slack, calls, make = std::move(make)] {
    prctl(PR_SET_TIMERSLACK, slack);
    pthread_setname_np(pthread_self(), "gloo");  // for debuggers
    try {
      make();
      made->set_value();
    } catch (...) {
      made->set_exception(std::current_exception());
    }
  });
  ThrowIfError(starter.status());
  starter->detach();
  while (result.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) look();
  result.get();
}

}  // namespace lockstep::comm::internal
