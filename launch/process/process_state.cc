#include "lockstep/launch/process/process_state.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch {
namespace {

// The number of processes that NotEnded() names.
constexpr int kMostNamed = 10;

}  // namespace

std::string ReadFile(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[4096];
  ssize_t n;
  while (file.valid() && ((n = read(file.get(), buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR))) {
    if (n > 0) text.append(buffer, n);
  }
  return text;
}

std::vector<pid_t> NumbersIn(const std::string& path) {
  std::vector<pid_t> numbers;
  for (const std::string& name : NamesIn(path)) {
    pid_t number;
    if (absl::SimpleAtoi(name, &number)) numbers.push_back(number);
  }
  return numbers;
}

std::optional<ProcessState> ParseProcessState(absl::string_view stat) {
  const size_t name_begin = stat.find(" ("), name_end = stat.rfind(") ");
  if (name_begin == absl::string_view::npos || name_end == absl::string_view::npos || name_end < name_begin + 2) {
    return std::nullopt;
  }
  ProcessState process;
  const std::vector<absl::string_view> rest = absl::StrSplit(stat.substr(name_end + 2), ' ');
  if (rest.size() < 2 || rest[0].size() != 1 || !absl::SimpleAtoi(stat.substr(0, name_begin), &process.pid) ||
      !absl::SimpleAtoi(rest[1], &process.parent)) {
    return std::nullopt;
  }
  process.state = rest[0][0];
  process.name = std::string(stat.substr(name_begin + 2, name_end - name_begin - 2));
  return process;
}

std::optional<ProcessState> ReadProcessState(pid_t pid) {
  return ParseProcessState(ReadFile(absl::StrCat("/proc/", pid, "/stat")));
}

std::string NotEnded(const std::vector<ProcessState>& processes) {
  std::string text;
  for (int i = 0; i < processes.size() && i < kMostNamed; ++i) {
    absl::StrAppend(&text, text.empty() ? "SIGKILL did not end " : ", ", "pid ", processes[i].pid, " (\"",
                    Printable(processes[i].name), "\", state ", std::string(1, processes[i].state), ")");
  }
  if (processes.size() > kMostNamed) absl::StrAppend(&text, " and ", processes.size() - kMostNamed, " more");
  return text;
}

}  // namespace lockstep::launch
