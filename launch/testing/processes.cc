#include "lockstep/launch/testing/processes.h"

#include <glob.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/listen.h"
#include "lockstep/base/posix/socket_address.h"

namespace lockstep::launch::testing {

std::string NewFolder() {
  const char* base = getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(base ? base : "/tmp", "/launch.XXXXXX");
  return mkdtemp(path.data()) ? absl::StrCat(path, "/") : "";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // does not throw if the file is in /proc and its process has ended
  return text.str();
}

bool Eventually(const std::function<bool()>& condition, absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

pid_t AwaitPid(const std::string& path) {
  pid_t pid = 0;
  Eventually(
      [&] {
        const std::string text = ReadFile(path);
        return !text.empty() && text.back() == '\n' && absl::SimpleAtoi(text, &pid);
      },
      absl::Seconds(30));
  return pid;
}

int64_t KibibytesIn(const std::string& path) {
  const std::vector<std::string> words = absl::StrSplit(ReadFile(path), absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  int64_t kibibytes = 0;
  return words.size() == 3 && absl::SimpleAtoi(words[1], &kibibytes) ? kibibytes : 0;
}

std::vector<std::string> ReadFiles(const std::string& pattern) {
  glob_t found = {};
  std::vector<std::string> texts;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) texts.push_back(ReadFile(found.gl_pathv[i]));
  }
  globfree(&found);
  return texts;
}

int OpenDescriptors(pid_t pid) {
  int count = 0;
  std::error_code error;
  const std::filesystem::directory_iterator fds(absl::StrCat("/proc/", pid, "/fd"), error);
  for (const auto& fd : fds) count += fd.path().empty() ? 0 : 1;
  return count;
}

UniqueFd ListenAt(int port) {
  return lockstep::ListenAt(Resolve("0.0.0.0", port)->front(), {.blocks = true, .reuses_port = true});
}

bool Gone(pid_t pid) {
  if (kill(pid, 0) != 0) return true;
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.substr(name_end, 3) == ") Z";
}

}  // namespace lockstep::launch::testing
