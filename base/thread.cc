#include "lockstep/base/thread.h"

#include <sys/resource.h>

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace lockstep {
namespace {

std::string Limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NPROC, &limit);
  const std::string most = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit.rlim_cur);
  return absl::StrCat("the soft limit of a user's threads is ", most,
                      " (RLIMIT_NPROC, ulimit -u); a container has its own limit, pids.max");
}

}  // namespace

absl::StatusOr<std::thread> StartThread(absl::string_view name, std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", name, ": ", error.code().message(), " (", Limit(), ")"));
  }
}

absl::Status CheckThreadsStart(absl::string_view name, int count) {
  std::vector<std::thread> threads;
  absl::Notification end;
  absl::Status status;
  while (status.ok() && static_cast<int>(threads.size()) < count) {
    absl::StatusOr<std::thread> thread = StartThread(name, [&end] { end.WaitForNotification(); });
    status = thread.status();
    if (thread.ok()) threads.push_back(*std::move(thread));
  }
  end.Notify();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace lockstep
