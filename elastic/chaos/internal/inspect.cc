#include "lockstep/elastic/chaos/internal/inspect.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/elastic/chaos/internal/victim.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic::chaos::internal {

using launch::testing::ReadFile;

std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<pid_t> ProcessesWith(absl::string_view marker) {
  std::vector<pid_t> pids;
  for (const std::string& name : NamesIn("/proc")) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(name, &pid) && EnvironmentContains(pid, marker)) pids.push_back(pid);
  }
  std::sort(pids.begin(), pids.end());
  return pids;
}

std::string ProgramOf(pid_t pid) {
  char path[PATH_MAX];
  const ssize_t length = readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), path, sizeof(path));
  return length > 0 ? std::string(path, length) : "";
}

std::string DumpOf(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  std::string text = absl::StrCat("process ", pid, ": ", ReadFile(absl::StrCat(folder, "/stat")));
  for (const std::string& thread : NamesIn(absl::StrCat(folder, "/task"))) {
    const std::string task = absl::StrCat(folder, "/task/", thread);
    absl::StrAppend(&text, "  thread ", thread, " ", ReadFile(absl::StrCat(task, "/comm")), "  waits in ",
                    ReadFile(absl::StrCat(task, "/wchan")), "\n", ReadFile(absl::StrCat(task, "/stack")));
  }
  return text;
}

std::string LastLines(const std::string& path) {
  std::string text = ReadFile(path);
  constexpr size_t kMost = 4000;
  if (text.size() > kMost) text = absl::StrCat("...", text.substr(text.size() - kMost));
  return text;
}

}  // namespace lockstep::elastic::chaos::internal
