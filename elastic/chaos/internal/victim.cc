#include "lockstep/elastic/chaos/internal/victim.h"

#include <dirent.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic::chaos::internal {

using launch::testing::ReadFile;

bool EnvironmentContains(pid_t pid, absl::string_view text) {
  return absl::StrContains(ReadFile(absl::StrCat("/proc/", pid, "/environ")), text);
}

int DescriptorsOf(pid_t pid) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(absl::StrCat("/proc/", pid, "/fd").c_str()), closedir);
  if (!folder) return -1;
  int count = 0;
  while (const dirent* entry = readdir(folder.get())) count += entry->d_name[0] != '.';
  return count;
}

int64_t MemoryOf(pid_t pid) {
  int64_t pages = 0, resident = 0;
  if (sscanf(ReadFile(absl::StrCat("/proc/", pid, "/statm")).c_str(), "%ld %ld", &pages, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

absl::StatusOr<Victim> Victim::Find(pid_t pid, absl::string_view marker) {
  UniqueFd pidfd(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
  if (!pidfd.valid() || !EnvironmentContains(pid, marker)) {
    return absl::NotFoundError(absl::StrCat("chaos: process ", pid, " is not of this job"));
  }
  return Victim(pid, std::move(pidfd));
}

void Victim::Signal(int signal) const { syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0); }

bool Victim::ended() const {
  pollfd fd = {pidfd_.get(), POLLIN, 0};
  return poll(&fd, 1, 0) > 0;
}

void Victim::TakeDescriptors() const {
  rlimit limit = {};
  if (prlimit(pid_, RLIMIT_NOFILE, nullptr, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max = STDERR_FILENO + 1;  // a program may raise the soft limit itself
  prlimit(pid_, RLIMIT_NOFILE, &limit, nullptr);
}

}  // namespace lockstep::elastic::chaos::internal
