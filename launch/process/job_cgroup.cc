#include "lockstep/launch/process/job_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/launch/process/process_state.h"

namespace lockstep::launch {
namespace {

// A cgroup can be removed within about 1 ms of the end of its last process.
constexpr absl::Duration kPause = absl::Milliseconds(1);
constexpr char kName[] = "lockstep-launch-";
constexpr int kTries = 3;

// The path after "0::", which is the line of version 2.
absl::string_view PathInHierarchy(absl::string_view cgroup) {
  for (absl::string_view line : absl::StrSplit(cgroup, '\n')) {
    if (absl::ConsumePrefix(&line, "0::")) return line;
  }
  return "";
}

// A mount shows the cgroups from `root` down. A container's root may be above what it sees ("/..").
bool ConsumeRoot(absl::string_view root, absl::string_view* path) {
  if (root == "/") return true;
  return absl::ConsumePrefix(path, root) && (path->empty() || path->front() == '/');
}

// mountinfo writes a space as "\040".
std::string Unescaped(absl::string_view text) {
  std::string path;
  return absl::CUnescape(text, &path) ? path : "";
}

// A folder in a cgroup is a cgroup. The rest of its entries are files, which go with it.
void RemoveFolders(const std::string& folder) {
  {
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), closedir);
    while (const dirent* entry = entries ? readdir(entries.get()) : nullptr) {
      const absl::string_view name = entry->d_name;
      if (entry->d_type == DT_DIR && name != "." && name != "..") RemoveFolders(absl::StrCat(folder, "/", name));
    }
  }
  rmdir(folder.c_str());
}

// The folder with a lock. Invalid if another process has locked it, or it is gone.
UniqueFd Locked(const std::string& folder) {
  UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? std::move(fd) : UniqueFd();
}

// Launchers whose processes were all killed in the same moment could not remove theirs.
void RemoveLeftCgroups(const std::string& parent) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(parent.c_str()), closedir);
  while (const dirent* entry = entries ? readdir(entries.get()) : nullptr) {
    if (entry->d_type != DT_DIR || !absl::StartsWith(entry->d_name, kName)) continue;
    const std::string folder = absl::StrCat(parent, "/", entry->d_name);
    const UniqueFd lock = Locked(folder);
    const bool is_empty = absl::StrContains(ReadFile(absl::StrCat(folder, "/cgroup.events")), "populated 0\n");
    if (lock.valid() && is_empty) RemoveFolders(folder);
  }
}

}  // namespace

std::string CgroupFolder(absl::string_view mountinfo, absl::string_view cgroup) {
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    // id, parent, device, root, mount point, options, any number of fields, "-", type, ...
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> fields = absl::StrSplit(halves[0], ' ');
    absl::string_view path = PathInHierarchy(cgroup);
    if (halves.size() != 2 || fields.size() < 5 || path.empty() || halves[1].substr(0, 8) != "cgroup2 ") continue;
    if (ConsumeRoot(Unescaped(fields[3]), &path)) return absl::StrCat(Unescaped(fields[4]), path == "/" ? "" : path);
  }
  return "";
}

JobCgroup CreateJobCgroup() {
  return CreateJobCgroupIn(CgroupFolder(ReadFile("/proc/self/mountinfo"), ReadFile("/proc/self/cgroup")));
}

JobCgroup CreateJobCgroupIn(const std::string& parent) {
  if (parent.empty()) return {};
  RemoveLeftCgroups(parent);
  for (int i = 0; i < kTries; ++i) {
    JobCgroup cgroup;
    cgroup.folder = absl::StrCat(parent, "/", kName, "XXXXXX");
    if (!mkdtemp(cgroup.folder.data())) return {};
    cgroup.lock = Locked(cgroup.folder);
    const bool can_kill = access(absl::StrCat(cgroup.folder, "/cgroup.kill").c_str(), W_OK) == 0;
    // Another launcher may have taken it for one that was left, in the moment before it was locked.
    if (cgroup.lock.valid() && can_kill) return cgroup;
    if (rmdir(cgroup.folder.c_str()) == 0 && !can_kill) return {};
  }
  return {};
}

void KillJobCgroup(const std::string& folder) {
  if (folder.empty()) return;
  const UniqueFd file(open(absl::StrCat(folder, "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  // If it fails, the caller's passes over the descendants do the same more slowly.
  while (file.valid() && write(file.get(), "1", 1) < 0 && errno == EINTR) {
  }
}

void RemoveJobCgroup(const std::string& folder, absl::Duration patience) {
  if (folder.empty()) return;
  const int64_t deadline = MonotonicNanos() + absl::ToInt64Nanoseconds(patience);
  for (;;) {
    RemoveFolders(folder);
    if (access(folder.c_str(), F_OK) != 0 || MonotonicNanos() >= deadline) return;
    absl::SleepFor(kPause);
  }
}

}  // namespace lockstep::launch
