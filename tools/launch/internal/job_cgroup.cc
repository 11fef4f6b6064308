#include "lockstep/tools/launch/internal/job_cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/tools/launch/internal/process_state.h"
#include "lockstep/tools/launch/internal/report_file.h"
#include "lockstep/tools/launch/internal/unique_fd.h"

namespace lockstep::launch::internal {
namespace {

// A cgroup can be removed within about 1 ms of the end of its last process.
constexpr absl::Duration kPause = absl::Milliseconds(1);

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

std::string CreateJobCgroup() {
  const std::string own = CgroupFolder(ReadFile("/proc/self/mountinfo"), ReadFile("/proc/self/cgroup"));
  std::string folder = absl::StrCat(own, "/lockstep-launch-XXXXXX");
  if (own.empty() || !mkdtemp(folder.data())) return "";
  if (access(absl::StrCat(folder, "/cgroup.kill").c_str(), W_OK) == 0) return folder;
  rmdir(folder.c_str());
  return "";
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

}  // namespace lockstep::launch::internal
