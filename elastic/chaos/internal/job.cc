#include "lockstep/elastic/chaos/internal/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/inspect.h"
#include "lockstep/elastic/chaos/internal/victim.h"
#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/process/process.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic::chaos::internal {
namespace {

std::string OutputOf(const std::string& folder, int host) { return absl::StrCat(folder, "/output", host); }

}  // namespace

Job::Job(std::string folder, const JobOptions& options)
    : folder_(std::move(folder)),
      marker_(absl::StrCat(kBoardVariable, "=", folder_, "/")),
      launch_(options.launch),
      ranks_(options.ranks),
      environment_(options.environment),
      replaces_stalled_(options.replaces_stalled),
      lost_(options.hosts) {
  environment_[kBoardVariable] = absl::StrCat(folder_, "/board");
  environment_["D"] = folder_;
  environment_["TMPDIR"] = absl::StrCat(folder_, "/tmp");
  environment_["XDG_RUNTIME_DIR"] = absl::StrCat(folder_, "/run");
  environment_["OMP_NUM_THREADS"] = "1";
}

absl::StatusOr<std::unique_ptr<Job>> Job::Start(const std::string& folder, const JobOptions& options) {
  std::unique_ptr<Job> job(new Job(folder, options));
  for (const char* name : {"", "/tmp", "/run", "/etcd"}) {
    const std::string path = absl::StrCat(folder, name);
    if (mkdir(path.c_str(), 0700) != 0) return absl::FailedPreconditionError(absl::StrCat("chaos: cannot make ", path));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(job->board_, Board::Create(job->environment_[kBoardVariable]));
  job->shm_before_ = NamesIn("/dev/shm");
  LOCKSTEP_RETURN_IF_ERROR(job->MakeHosts(options));
  for (Host& host : job->hosts_) LOCKSTEP_RETURN_IF_ERROR(host.Start());
  return job;
}

absl::Status Job::MakeHosts(const JobOptions& options) {
  if (options.hosts > 1) {
    if (options.network) {
      LOCKSTEP_ASSIGN_OR_RETURN(network_, comm::testing::NetworkHosts::Create(options.hosts + 1));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(meeting_,
                              Meeting::Start(options.rendezvous, absl::StrCat(folder_, "/etcd/"), network_.get()));
    const std::string secret = launch::NewJobSecret(/*nnodes=*/1, environment_);
    if (!secret.empty()) environment_["LOCKSTEP_JOB_SECRET"] = secret;
  }
  for (int number = 0; number < options.hosts; ++number) {
    HostSpec spec;
    spec.number = number;
    spec.launch = launch_;
    spec.arguments = {"--standalone"};
    if (meeting_) spec.arguments = meeting_->Arguments(number, options.hosts);
    spec.prefix = PrefixOf(number);
    if (replaces_stalled_) spec.arguments.push_back("--stall_timeout=30");
    spec.arguments.push_back(absl::StrCat("--nproc_per_node=", ranks_));
    spec.arguments.push_back(options.program);
    spec.environment = environment_;
    spec.environment["SLOT_BASE"] = absl::StrCat(number * ranks_);
    spec.output = OutputOf(folder_, number);
    spec.events = absl::StrCat(folder_, "/events", number);
    hosts_.emplace_back(std::move(spec));
  }
  return absl::OkStatus();
}

// The file must be a path.
std::vector<std::string> Job::PrefixOf(int host) const {
  if (!network_) return {};
  std::vector<std::string> prefix = network_->CommandInside(host + 1);
  const absl::StatusOr<std::string> file = launch::FindProgram(prefix[0]);
  if (file.ok()) prefix[0] = *file;
  return prefix;
}

Job::~Job() {
  for (Host& host : hosts_) {
    if (host.runs()) kill(host.pid(), SIGKILL);  // launch's other processes then end everything
  }
  for (Host& host : hosts_) {
    if (host.runs()) waitpid(host.pid(), nullptr, 0);
  }
  meeting_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(absl::StrCat(folder_, "/etcd"), ignored);
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

std::vector<int> Job::RunningHosts() {
  std::vector<int> running;
  for (size_t number = 0; number < hosts_.size(); ++number) {
    if (!lost_[number].is_expected && hosts_[number].runs()) running.push_back(static_cast<int>(number));
  }
  return running;
}

bool Job::IsWhole() { return Members().size() == RunningHosts().size() * ranks_; }

void Job::StartAgain(int number, absl::Duration pause) {
  lost_[number].start_ns = MonotonicNanos() + absl::ToInt64Nanoseconds(pause);
}

absl::Status Job::Tend() {
  for (size_t number = 0; number < hosts_.size(); ++number) {
    Lost& lost = lost_[number];
    if (lost.start_ns != 0 && MonotonicNanos() >= lost.start_ns) {
      LOCKSTEP_RETURN_IF_ERROR(hosts_[number].Start());
      lost = {};
    }
    if (lost.is_expected || hosts_[number].runs()) continue;
    return absl::AbortedError(
        absl::StrCat("the launcher of host ", number, " has ended too early: it ", hosts_[number].EndText()));
  }
  return absl::OkStatus();
}

absl::StatusOr<pid_t> Job::StartCommand(std::vector<std::string> command, int host) const {
  const std::string path = absl::StrCat(folder_, "/commands");
  const UniqueFd output(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  launch::ProcessSpec spec;
  spec.path = launch_;
  spec.argv = std::move(command);
  const std::vector<std::string> prefix = PrefixOf(host);
  spec.argv.insert(spec.argv.begin(), prefix.empty() ? "launch" : launch_);
  spec.argv.insert(spec.argv.begin(), prefix.begin(), prefix.end());
  if (!prefix.empty()) spec.path = prefix[0];
  spec.environment = launch::ChangedEnvironment(environment_);
  spec.stdout_fd = spec.stderr_fd = output.get();
  LOCKSTEP_ASSIGN_OR_RETURN(const launch::Process process, launch::StartProcess(spec));
  return process.pid;
}

int Job::CountLines(absl::string_view text) const {
  int count = 0;
  for (size_t number = 0; number < hosts_.size(); ++number) {
    const std::string output = launch::testing::ReadFile(OutputOf(folder_, static_cast<int>(number)));
    for (const absl::string_view line : absl::StrSplit(output, '\n')) count += absl::StrContains(line, text);
  }
  return count;
}

std::map<int, Held> Job::held() {
  std::map<int, Held> all;
  for (const int number : RunningHosts()) {
    Held& held = all[number];
    held.pid = hosts_[number].pid();
    for (const pid_t pid : hosts_[number].LauncherProcesses()) {
      held.descriptors += DescriptorsOf(pid);
      held.kibibytes += MemoryOf(pid);
    }
  }
  return all;
}

absl::Status Job::AwaitEnd(absl::Duration patience, const std::vector<int>& codes) {
  const auto has_ended = [this] {
    return std::none_of(hosts_.begin(), hosts_.end(), [](Host& host) { return host.runs(); });
  };
  if (!launch::testing::Eventually(has_ended, patience)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the job has not ended within ", absl::FormatDuration(patience), "\n", Dump()));
  }
  for (size_t number = 0; number < hosts_.size(); ++number) {
    const Host& host = hosts_[number];
    if (std::any_of(codes.begin(), codes.end(), [&](int code) { return host.ExitedWith(code); })) continue;
    return absl::AbortedError(absl::StrCat("the launcher of host ", number, " ", hosts_[number].EndText()));
  }
  return absl::OkStatus();
}

std::vector<std::string> Job::Leftovers() const {
  const absl::StatusOr<pid_t> command = StartCommand({"status"});
  if (command.ok()) waitpid(*command, nullptr, 0);
  std::vector<std::string> left;
  for (const pid_t pid : ProcessesWith(marker_)) left.push_back(absl::StrCat("process ", pid, ": ", DumpOf(pid)));
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
  for (const pid_t pid : ProcessesWith(marker_)) absl::StrAppend(&text, DumpOf(pid));
  for (size_t number = 0; number < hosts_.size(); ++number) {
    absl::StrAppend(&text, "host ", number, ":\n", LastLines(OutputOf(folder_, static_cast<int>(number))));
  }
  return text;
}

}  // namespace lockstep::elastic::chaos::internal
