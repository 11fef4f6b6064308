#include "lockstep/elastic/chaos/internal/host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/inspect.h"
#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::elastic::chaos::internal {
namespace {

// The number after `key`, as in "pid":4711.
bool FindNumber(absl::string_view line, absl::string_view key, int* number) {
  const size_t begin = line.find(key);
  if (begin == absl::string_view::npos) return false;
  line.remove_prefix(begin + key.size());
  return absl::SimpleAtoi(line.substr(0, line.find_first_of(",}")), number);
}

}  // namespace

absl::Status Host::Start() {
  const UniqueFd output(open(spec_.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", spec_.output));
  ++starts_;
  std::map<std::string, std::string> environment = spec_.environment;
  environment[kHostVariable] = MarkerValue();
  launch::ProcessSpec process_spec;
  process_spec.path = spec_.launch;
  process_spec.argv = {"launch", absl::StrCat("--event_log=", spec_.events)};
  if (!spec_.prefix.empty()) {
    process_spec.path = spec_.prefix[0];
    process_spec.argv = spec_.prefix;
    process_spec.argv.insert(process_spec.argv.end(), {spec_.launch, absl::StrCat("--event_log=", spec_.events)});
  }
  process_spec.argv.insert(process_spec.argv.end(), spec_.arguments.begin(), spec_.arguments.end());
  process_spec.environment = launch::ChangedEnvironment(environment);
  process_spec.stdout_fd = process_spec.stderr_fd = output.get();
  absl::StatusOr<launch::Process> process = launch::StartProcess(process_spec);
  if (!process.ok()) return Annotate(process.status(), spec_.launch);
  pid_ = process->pid;
  runs_ = true;
  return absl::OkStatus();
}

bool Host::runs() {
  if (runs_) runs_ = waitpid(pid_, &wait_status_, WNOHANG) != pid_;
  return runs_;
}

std::string Host::MarkerValue() const { return absl::StrCat(spec_.output, ".", starts_, ";"); }

std::string Host::marker() const { return absl::StrCat(kHostVariable, "=", MarkerValue()); }

std::vector<pid_t> Host::LauncherProcesses() const {
  std::vector<pid_t> launchers;
  for (const pid_t pid : ProcessesWith(marker())) {
    if (absl::EndsWith(ProgramOf(pid), "/launch")) launchers.push_back(pid);
  }
  return launchers;
}

bool Host::ExitedWith(int code) const { return WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == code; }

std::string Host::EndText() const {
  const std::string how = WIFEXITED(wait_status_) ? absl::StrCat("exited with code ", WEXITSTATUS(wait_status_))
                                                  : absl::StrCat("was killed by signal ", WTERMSIG(wait_status_));
  return absl::StrCat(how, "; its last lines:\n", LastLines(spec_.output));
}

void Host::ReadEvents() {
  std::ifstream file(spec_.events);
  file.seekg(static_cast<std::streamoff>(events_read_));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    events_read_ += line.size() + 1;
    int local_rank = 0, pid = 0;
    if (absl::StrContains(line, "\"event\":\"rank_started\"") && FindNumber(line, "\"local_rank\":", &local_rank) &&
        FindNumber(line, "\"pid\":", &pid)) {
      started_[local_rank] = pid;
    }
  }
}

pid_t Host::LastStarted(int local_rank) {
  ReadEvents();
  return started_[local_rank];
}

}  // namespace lockstep::elastic::chaos::internal
