#include "lockstep/elastic/chaos/internal/job.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/victim.h"
#include "lockstep/tools/launch/internal/process.h"
#include "lockstep/tools/launch/internal/rank_variables.h"
#include "lockstep/tools/launch/internal/unique_fd.h"
#include "lockstep/tools/launch/testing/processes.h"

namespace lockstep::elastic::chaos::internal {
namespace {

using launch::internal::UniqueFd;
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

// The number after `key`, as in "pid":4711.
bool FindNumber(absl::string_view line, absl::string_view key, int* number) {
  const size_t begin = line.find(key);
  if (begin == absl::string_view::npos) return false;
  line.remove_prefix(begin + key.size());
  return absl::SimpleAtoi(line.substr(0, line.find_first_of(",}")), number);
}

std::string LastLines(const std::string& path) {
  std::string text = ReadFile(path);
  constexpr size_t kMost = 4000;
  if (text.size() > kMost) text = absl::StrCat("...", text.substr(text.size() - kMost));
  return text;
}

// The file that it executes; "" if it is gone.
std::string ProgramOf(pid_t pid) {
  char path[PATH_MAX];
  const ssize_t length = readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), path, sizeof(path));
  return length > 0 ? std::string(path, length) : "";
}

// Its name, state and threads; "" if it is gone.
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

}  // namespace

Job::Job(std::string folder) : folder_(std::move(folder)), marker_(absl::StrCat(kBoardVariable, "=", folder_, "/")) {}

absl::StatusOr<std::unique_ptr<Job>> Job::Start(const std::string& folder, const JobOptions& options) {
  std::unique_ptr<Job> job(new Job(folder));
  for (const std::string& path : {folder, absl::StrCat(folder, "/tmp"), absl::StrCat(folder, "/run")}) {
    if (mkdir(path.c_str(), 0700) != 0) return absl::FailedPreconditionError(absl::StrCat("chaos: cannot make ", path));
  }
  const std::string board = absl::StrCat(folder, "/board");
  LOCKSTEP_ASSIGN_OR_RETURN(job->board_, Board::Create(board));
  job->shm_before_ = NamesIn("/dev/shm");
  std::map<std::string, std::string> environment = options.environment;
  environment[kBoardVariable] = board;
  environment["D"] = folder;
  environment["TMPDIR"] = absl::StrCat(folder, "/tmp");
  environment["XDG_RUNTIME_DIR"] = absl::StrCat(folder, "/run");
  environment["OMP_NUM_THREADS"] = "1";
  const UniqueFd output(open(absl::StrCat(folder, "/output").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  launch::internal::ProcessSpec spec;
  spec.path = options.launch;
  spec.argv = {"launch", "--standalone", absl::StrCat("--nproc_per_node=", options.ranks),
               absl::StrCat("--event_log=", folder, "/events"), options.program};
  spec.environment = launch::internal::ChangedEnvironment(environment);
  spec.stdout_fd = spec.stderr_fd = output.get();
  absl::StatusOr<launch::internal::Process> process = launch::internal::StartProcess(spec);
  if (!process.ok()) return Annotate(process.status(), options.launch);
  job->pid_ = process->pid;
  return job;
}

Job::~Job() {
  if (pid_ == 0 || ended()) return;
  kill(pid_, SIGKILL);  // launch's other processes then end everything
  waitpid(pid_, nullptr, 0);
}

std::vector<Member> Job::Members() {
  const int64_t generation = board_->generation();
  std::vector<Member> members;
  for (int slot = 0; slot < kMostSlots; ++slot) {
    const Board::Place& place = board_->place(slot);
    if (place.stage != static_cast<int>(Stage::kTrains) || place.generation != generation || place.pid == 0) continue;
    members.push_back({slot, place.rank, place.pid});
  }
  if (members.empty() || static_cast<int64_t>(members.size()) != board_->Generation(generation).value) return {};
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.rank < b.rank; });
  return members;
}

void Job::ReadEvents() {
  std::ifstream file(absl::StrCat(folder_, "/events"));
  file.seekg(static_cast<std::streamoff>(events_read_));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    events_read_ += line.size() + 1;
    int slot = 0, pid = 0;
    if (absl::StrContains(line, "\"event\":\"rank_started\"") && FindNumber(line, "\"local_rank\":", &slot) &&
        FindNumber(line, "\"pid\":", &pid)) {
      started_[slot] = pid;
    }
  }
}

pid_t Job::LastStarted(int slot) {
  ReadEvents();
  return started_[slot];
}

// launch is three processes.
Held Job::held() const {
  Held held;
  for (const pid_t pid : Processes()) {
    if (!absl::EndsWith(ProgramOf(pid), "/launch")) continue;
    held.descriptors += DescriptorsOf(pid);
    held.kibibytes += MemoryOf(pid);
  }
  return held;
}

bool Job::ended() {
  if (!ended_) ended_ = waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return ended_;
}

absl::Status Job::AwaitEnd(absl::Duration patience) {
  if (!launch::testing::Eventually([this] { return ended(); }, patience)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the job has not ended within ", absl::FormatDuration(patience), "\n", Dump()));
  }
  if (WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0) return absl::OkStatus();
  const std::string how = WIFEXITED(wait_status_) ? absl::StrCat("with code ", WEXITSTATUS(wait_status_))
                                                  : absl::StrCat("by signal ", WTERMSIG(wait_status_));
  return absl::AbortedError(
      absl::StrCat("launch has ended ", how, "; its last lines:\n", LastLines(absl::StrCat(folder_, "/output"))));
}

// All that have the marker. Other users' processes cannot be read.
std::vector<pid_t> Job::Processes() const {
  std::vector<pid_t> pids;
  for (const std::string& name : NamesIn("/proc")) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(name, &pid) && EnvironmentContains(pid, marker_)) pids.push_back(pid);
  }
  return pids;
}

std::vector<std::string> Job::Leftovers() const {
  std::vector<std::string> left;
  for (const pid_t pid : Processes()) left.push_back(absl::StrCat("process ", pid, ": ", DumpOf(pid)));
  for (const char* folder : {"/tmp", "/run/lockstep"}) {
    for (const std::string& name : NamesIn(absl::StrCat(folder_, folder))) {
      left.push_back(absl::StrCat(folder_, folder, "/", name));
    }
  }
  for (const std::string& name : NamesIn("/dev/shm")) {
    if (!std::binary_search(shm_before_.begin(), shm_before_.end(), name))
      left.push_back(absl::StrCat("/dev/shm/", name));
  }
  return left;
}

std::string Job::Dump() const {
  std::string text;
  for (const pid_t pid : Processes()) absl::StrAppend(&text, DumpOf(pid));
  return absl::StrCat(text, LastLines(absl::StrCat(folder_, "/output")));
}

}  // namespace lockstep::elastic::chaos::internal
