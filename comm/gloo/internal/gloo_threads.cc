#include "lockstep/comm/gloo/internal/gloo_threads.h"

#include <pthread.h>

#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/comm/internal/uncaught.h"

namespace lockstep::comm::internal {
namespace {

constexpr size_t kNameSize = 16;  // Linux's limit, with the 0 at the end

// The calls whose threads have a name. std::mutex: the threads that look here may be in the middle of anything.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<GlooCalls>> calls;
  int started = 0;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

std::string Register(const std::shared_ptr<GlooCalls>& calls) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  for (auto entry = registry.calls.begin(); entry != registry.calls.end();) {
    entry = entry->second.expired() ? registry.calls.erase(entry) : std::next(entry);
  }
  const std::string name = absl::StrCat("gloo-", registry.started++);
  registry.calls[name] = calls;
  return name;
}

// If a Gloo thread's group has been destroyed, no call waits for the thread.
bool IsOfGloo(const std::string& name, std::shared_ptr<GlooCalls>& calls) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.calls.find(name);
  if (found == registry.calls.end()) return false;
  calls = found->second.lock();
  return true;
}

bool EndGlooThread() {
  char name[kNameSize] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  std::shared_ptr<GlooCalls> calls;
  if (!std::current_exception() || !IsOfGloo(name, calls)) return false;
  if (calls) calls->Break(std::string(BackendStatus("").message()));
  return true;
}

}  // namespace

void StartGloo(const std::shared_ptr<GlooCalls>& calls, const std::function<void()>& make) {
  SpareProcess(EndGlooThread);
  const std::string name = Register(calls);
  std::exception_ptr error;
  absl::StatusOr<std::thread> starter = StartThread("Gloo's threads", [&] {
    pthread_setname_np(pthread_self(), name.c_str());
    try {
      make();
    } catch (...) {
      error = std::current_exception();
    }
  });
  ThrowIfError(starter.status());
  starter->join();
  if (error) std::rethrow_exception(error);
}

}  // namespace lockstep::comm::internal
