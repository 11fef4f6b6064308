#include "lockstep/comm/internal/uncaught.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/internal/backend_status.h"

namespace lockstep::comm::internal {
namespace {

// Time for the watch's thread to send the message.
constexpr std::chrono::milliseconds kTimeToNotify{100};

// The groups that exist. They are global, because a terminate handler has no arguments.
struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<GroupState>> groups;
  std::terminate_handler previous = nullptr;
  std::atomic<EndThreadAlone> end_thread_alone{nullptr};
};

Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

std::string WhatEndsTheProcess() {
  if (!std::current_exception()) return "std::terminate was called";
  return absl::StrCat("uncaught exception: ", BackendStatus("").message());
}

// Returns whether any group exists.
bool NotifyGroups(const std::vector<std::weak_ptr<GroupState>>& groups) {
  bool notified = false;
  for (const auto& weak : groups) {
    const auto group = weak.lock();
    const auto watch = group ? group->watch() : nullptr;
    if (!watch) continue;
    const absl::Status end = absl::AbortedError(WhatEndsTheProcess());
    group->RecordOwnError(end);  // for when the watch reports it to this rank, too
    watch->Abort(end);
    notified = true;
  }
  return notified;
}

[[noreturn]] void Terminate() {
  Registry& registry = TheRegistry();
  const EndThreadAlone decide = registry.end_thread_alone.load();
  if (decide && decide()) {
    while (true) pause();
  }
  // The thread that is ending may hold the mutex.
  if (registry.mutex.try_lock()) {
    if (NotifyGroups(registry.groups)) std::this_thread::sleep_for(kTimeToNotify);
    registry.mutex.unlock();
  }
  if (registry.previous) registry.previous();
  std::abort();
}

void InstallLocked(Registry& registry) {
  if (std::get_terminate() == Terminate) return;
  registry.previous = std::set_terminate(Terminate);
}

}  // namespace

void SpareProcess(EndThreadAlone decide) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.end_thread_alone.store(decide);
  InstallLocked(registry);
}

void ReportUncaughtExceptions(const std::shared_ptr<GroupState>& group) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  auto& groups = registry.groups;
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const auto& weak) { return weak.expired(); }),
               groups.end());
  groups.push_back(group);
  InstallLocked(registry);
}

}  // namespace lockstep::comm::internal
