#include "lockstep/tools/launch/testing/processes.h"

#include <signal.h>
#include <stdlib.h>

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

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

bool Gone(pid_t pid) {
  if (kill(pid, 0) != 0) return true;
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.substr(name_end, 3) == ") Z";
}

}  // namespace lockstep::launch::testing
