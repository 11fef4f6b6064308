// Starts the ranks of a node: torchrun's counterpart, with its names of flags and environment variables.
//
//   launch --nproc_per_node=2 program --epochs=1
//
// Its flags come first; what follows the program's name belongs to the program. See --help.

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/host_name.h"
#include "lockstep/base/status.h"
#include "lockstep/base/version.h"
#include "lockstep/launch/flags/command_line.h"
#include "lockstep/launch/flags/flag_table.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/node/run_job.h"
#include "lockstep/launch/node/shared_lease.h"
#include "lockstep/launch/process/job_cgroup.h"
#include "lockstep/launch/process/keeper.h"
#include "lockstep/launch/status/commands.h"
#include "lockstep/launch/status/job_status.h"
#include "lockstep/launch/status/status_service.h"
#include "lockstep/launch/supervisor.h"

namespace {

namespace launch = lockstep::launch;

constexpr size_t kLongestProgram = 500;  // of what people see of a job

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

void Print(const absl::Status& status) {
  std::cerr << "launch: " << absl::StripPrefix(status.message(), "launch: ") << std::endl;
}

void PrintNotice(const std::string& notice) { std::cerr << "launch: " << notice << std::endl; }

// Prints the last lines of the rank that failed, if they are in a file.
void PrintStderrOf(const absl::Status& status) {
  const auto failure = launch::FirstFailure(status);
  if (!failure || failure->stderr_lines.empty()) return;
  std::cerr << "launch: the last lines of " << failure->stderr_file << ":\n";
  for (const std::string& line : failure->stderr_lines) std::cerr << "  " << line << "\n";
  std::cerr << std::flush;
}

// Returns the parts of the status that do not change while the job runs. `pid` is the one that users know.
launch::JobStatus JobOf(const launch::CommandLine& line, pid_t pid) {
  launch::JobStatus job;
  job.job_id = line.options.run_id;
  job.host = lockstep::HostName();
  job.pid = pid;
  job.program = absl::StrJoin(line.program, " ").substr(0, kLongestProgram);
  job.started = absl::Now();
  job.grace = line.options.failure_grace.value_or(line.options.grace);
  job.max_restarts = line.options.max_restarts;
  job.meets_others = line.rendezvous.meets_others;
  job.min_nodes = job.meets_others ? line.rendezvous.min_nodes : line.options.nnodes;
  job.max_nodes = job.meets_others ? line.rendezvous.max_nodes : line.options.nnodes;
  if (line.options.nnodes > 1 || job.meets_others) return job;
  launch::HostStatus host;
  host.host = job.host;
  host.ranks = line.options.nproc_per_node;
  job.hosts.push_back(host);
  return job;
}

// A word that is not a program may be a command.
absl::Status WithNearestCommand(const absl::Status& status, const std::string& first_word, const std::string& program) {
  const bool may_be_command = first_word == program && !absl::StrContains(program, '/');
  const std::optional<std::string> command = launch::NearestCommand(program);
  if (!may_be_command || !command || !absl::IsNotFound(status) || launch::FirstFailure(status)) return status;
  return lockstep::WithEnding(status, absl::StrCat("; did you mean launch ", *command, "?"));
}

// Otherwise a descriptor of the launcher would be the stdout of its ranks.
void OpenClosedStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDWR);  // takes the lowest free number, which is `fd`
  }
}

// A reader of stderr that is gone does not end this program, nor its ranks. The handler, which exec removes, does not
// change what the signal does to the ranks.
void SurviveClosedOutput() {
  struct sigaction action;
  sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler == SIG_DFL) signal(SIGPIPE, [](int) {});
}

absl::Status RunRanks(pid_t known_pid, launch::CommandLine* line, launch::SharedLease* lease) {
  launch::StatusService service(JobOf(*line, known_pid), PrintNotice);
  line->options.watcher = &service;
  if (!line->rendezvous.meets_others) return launch::Launch(line->program, line->options);
  return launch::RunJob(line->program, line->options, line->rendezvous, lease);
}

}  // namespace

int main(int argc, char** argv) {
  OpenClosedStreams();
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (!args.empty() && launch::IsCommand(args[0])) return launch::RunCommand(args);
  absl::StatusOr<launch::CommandLine> line = launch::ParseCommandLine(args, Environment());
  if (!line.ok()) {
    Print(line.status());
    return 2;
  }
  if (line->help) {
    std::cout << launch::UsageText();
    return 0;
  }
  if (line->version) {
    std::cout << "launch (Lockstep) " LOCKSTEP_VERSION "\n";
    return 0;
  }
  signal(SIGCHLD, SIG_DFL);  // if the parent ignored it, no exit code would be available
  const pid_t known_pid = getpid();
  const launch::JobCgroup cgroup = launch::CreateJobCgroup();
  line->options.cgroup = cgroup.folder;
  launch::SharedLease lease;
  const absl::StatusOr<pid_t> keeper = launch::ForkLauncher(
      argc, argv, line->options.cgroup, [&] { return launch::EndLease(line->rendezvous, lease.Get()); });
  if (!keeper.ok()) {
    Print(keeper.status());
    launch::RemoveJobCgroup(line->options.cgroup, absl::Seconds(1));
    return launch::ExitCode(keeper.status());
  }
  line->options.subreaper = *keeper;
  SurviveClosedOutput();
  for (const std::string& notice : line->notices) PrintNotice(notice);
  line->options.on_failure = Print;
  line->options.on_notice = PrintNotice;
  const absl::Status status = RunRanks(known_pid, &*line, &lease);
  if (status.ok()) return 0;
  Print(WithNearestCommand(status, args[0], line->program[0]));
  PrintStderrOf(status);
  return absl::IsInvalidArgument(status) && !launch::FirstFailure(status) ? 2 : launch::ExitCode(status);
}
