#include "lockstep/launch/status/commands.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/nearest_name.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/status/job_client.h"
#include "lockstep/launch/status/job_status_json.h"
#include "lockstep/launch/status/status_table.h"
#include "lockstep/launch/status/terminal.h"
#include "lockstep/launch/status/top.h"

namespace lockstep::launch {
namespace {

// For people, rounded up to 10 ms: zero would have no unit.
std::string TimeSince(int64_t start_ns) {
  return absl::FormatDuration(absl::Ceil(absl::Nanoseconds(MonotonicNanos() - start_ns), absl::Milliseconds(10)));
}

// How long a node may need to leave, besides --grace: SIGKILL, the leader's answer, and a loaded machine.
constexpr absl::Duration kLeaveTime = absl::Seconds(30);
constexpr absl::Duration kLook = absl::Milliseconds(100);

constexpr char kStillAsked[] = "; the request stays, and is carried out when the job can";

constexpr char kStatusUsage[] =
    R"(usage: launch status [--json] [PID|JOB]

Shows a job that runs on this host: its state, its hosts, and the ranks of this node. PID is the one of `launch`, and
JOB the name in --rdzv_id. With several jobs and neither of them, one line shows each job.

  --json  what the launchers say, one line of JSON for each

The exit code is 1 if no such job runs. Only jobs of the same user are seen.
)";

constexpr char kTopUsage[] =
    R"(usage: launch top [PID|JOB]

Shows a job that runs on this host, as `launch status` does, twice a second, until it ends. q quits.
If the output is not a terminal, it shows the job once.
)";

constexpr char kDrainUsage[] =
    R"(usage: launch drain [PID|JOB] [HOST]

Takes this node out of the job, as SIGTERM to its `launch` does, and waits until it has left. If the job needs the node,
the job ends.

With HOST, the name or address of another host, it takes that one out. This needs --rdzv_backend=tcp or etcd-v3.
`launch status` names the hosts.

The exit code is 1 if the node is still there after --grace and 30 s.
)";

constexpr char kResizeUsage[] =
    R"(usage: launch resize [PID|JOB] MIN:MAX

Changes the number of nodes that a job with --rdzv_backend=tcp or etcd-v3 has, as --nnodes does at its start, and waits
until all nodes know. If more nodes take part than MAX, the ranks start again without the last ones, which wait. If
others wait and MAX has room for them, the ranks start again with them. MIN counts from the next start on. N means N:N.

The exit code is 1 if the job has no such limits after 30 s.
)";

struct Arguments {
  bool json = false;
  bool help = false;
  std::vector<std::string> words;
};

void Print(absl::string_view text) { std::cerr << "launch: " << text << std::endl; }

int Fail(const absl::Status& status) {
  Print(status.message());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

void PrintLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::cout << line << "\n";
  std::cout << std::flush;
}

TableSize OnlyWidth() {
  TableSize size = StdoutSize();
  size.height = 0;
  return size;
}

absl::StatusOr<Arguments> Parse(const std::vector<std::string>& args, size_t most_words, bool has_json) {
  Arguments arguments;
  std::vector<std::string> flags = {"--help"};
  if (has_json) flags.push_back("--json");
  for (size_t i = 1; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help" || arg == "-h" || arg == "-help") {
      arguments.help = true;
    } else if (has_json && arg == "--json") {
      arguments.json = true;
    } else if (absl::StartsWith(arg, "-")) {
      const std::optional<std::string> nearest = NearestName(arg, flags);
      return absl::InvalidArgumentError(absl::StrCat(args[0], ": unknown flag ", Printable(arg),
                                                     nearest ? absl::StrCat("; did you mean ", *nearest, "?") : ";",
                                                     " launch ", args[0], " --help lists the flags"));
    } else if (arguments.words.size() == most_words) {
      return absl::InvalidArgumentError(absl::StrCat(args[0], ": unexpected argument \"", Printable(arg), "\"; launch ",
                                                     args[0], " --help shows how"));
    } else {
      arguments.words.push_back(arg);
    }
  }
  return arguments;
}

absl::Status NoJob(const std::string& name, const std::vector<RunningJob>& all) {
  if (all.empty()) return absl::NotFoundError("no job of this user runs on this host");
  return absl::NotFoundError(absl::StrCat("no job has the pid or the name \"", Printable(name),
                                          "\"; launch status shows the jobs of this host"));
}

// The job that `name` means, which may be "". If several are meant, prints them and says how to choose.
absl::StatusOr<RunningJob> Choose(absl::string_view command, const std::string& name,
                                  const std::vector<RunningJob>& all) {
  std::vector<RunningJob> jobs = JobsNamed(name, all);
  if (jobs.empty()) return NoJob(name, all);
  if (jobs.size() > 1) {
    PrintLines(JobsTable(jobs, OnlyWidth(), StdoutHasColours()));
    return absl::FailedPreconditionError(
        absl::StrCat(jobs.size(), " jobs run here; choose one: launch ", command, " ", jobs[0].pid));
  }
  LOCKSTEP_RETURN_IF_ERROR(jobs[0].status.status());
  return std::move(jobs[0]);
}

int PrintJson(const std::vector<RunningJob>& jobs) {
  int code = 0;
  for (const RunningJob& job : jobs) {
    if (job.status.ok()) {
      std::cout << job.text << "\n";
    } else {
      code = Fail(job.status.status());
    }
  }
  std::cout << std::flush;
  return code;
}

// The one job that `name` means.
absl::StatusOr<RunningJob> FindJob(absl::string_view command, const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RunningJob> all, FindJobs(name));
  return Choose(command, name, all);
}

absl::StatusOr<int> Status(const Arguments& arguments) {
  const std::string name = arguments.words.empty() ? "" : arguments.words[0];
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RunningJob> all, FindJobs(name));
  const std::vector<RunningJob> jobs = JobsNamed(name, all);
  if (jobs.empty()) return NoJob(name, all);
  if (arguments.json) return PrintJson(jobs);
  if (jobs.size() > 1) {
    PrintLines(JobsTable(jobs, OnlyWidth(), StdoutHasColours()));
    std::cout << jobs.size() << " jobs run here; launch status " << jobs[0].pid << " shows the first one" << std::endl;
    return 0;
  }
  LOCKSTEP_RETURN_IF_ERROR(jobs[0].status.status());
  PrintLines(StatusTable(*jobs[0].status, OnlyWidth(), StdoutHasColours()));
  return 0;
}

absl::StatusOr<int> Top(const Arguments& arguments) {
  LOCKSTEP_ASSIGN_OR_RETURN(RunningJob job, FindJob("top", arguments.words.empty() ? "" : arguments.words[0]));
  if (isatty(STDOUT_FILENO)) return RunTop(std::move(job));
  Print("the output is not a terminal, so the job is shown once");
  PrintLines(StatusTable(*job.status, TableSize(), false));
  return 0;
}

// Returns whether the process ends before the deadline.
absl::StatusOr<bool> EndsBefore(const UniqueFd& process, int64_t deadline_ns) {
  pollfd ready = {process.get(), POLLIN, 0};
  for (;;) {
    const int count = poll(&ready, 1, PollTimeout(deadline_ns));
    if (count >= 0) return count > 0;
    if (errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", strerror(errno)));
  }
}

absl::Status DrainThisNode(const RunningJob& job) {
  const int64_t start_ns = MonotonicNanos();
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, job.pid, 0)));
  if (!process.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("process ", job.pid, " is not to be seen: ", strerror(errno), "; is it in another container?"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, AskLauncher(job.folder, job.pid, "drain"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string reply, DecodeReply(text));
  const absl::Duration patience = job.status->grace + kLeaveTime;
  Print(absl::StrCat(reply, "; its ranks have ", absl::FormatDuration(job.status->grace), " to end"));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool ends, EndsBefore(process, After(patience)));
  if (!ends) {
    return absl::DeadlineExceededError(
        absl::StrCat("the launcher with pid ", job.pid, " still runs after ", absl::FormatDuration(patience)));
  }
  Print(absl::StrCat("it has left after ", TimeSince(start_ns)));
  return absl::OkStatus();
}

bool IsCalled(const HostStatus& host, const std::string& name) { return host.host == name || host.address == name; }

// Returns whether the host takes part in the job, as its launcher on this host has seen it last.
bool TakesPart(const JobStatus& status, const std::string& host) {
  return std::any_of(status.hosts.begin(), status.hosts.end(),
                     [&](const HostStatus& h) { return IsCalled(h, host) && TakesPart(h); });
}

absl::Status DrainHost(const RunningJob& job, const std::string& host) {
  const int64_t start_ns = MonotonicNanos();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, AskLauncher(job.folder, job.pid, absl::StrCat("drain ", host)));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string reply, DecodeReply(text));
  const absl::Duration patience = job.status->grace + kLeaveTime;
  Print(absl::StrCat(reply, "; its ranks have ", absl::FormatDuration(job.status->grace), " to end"));
  for (const int64_t deadline_ns = After(patience); MonotonicNanos() < deadline_ns; absl::SleepFor(kLook)) {
    const RunningJob seen = LookAtJob(job.folder, job.pid);
    const bool has_ended = absl::IsNotFound(seen.status.status());
    if (!has_ended && (!seen.status.ok() || TakesPart(*seen.status, host))) continue;
    // The launcher of a host that leaves ends, and those of the others only with the job.
    const bool is_this = std::any_of(job.status->hosts.begin(), job.status->hosts.end(), [&](const HostStatus& h) {
      return h.host == job.status->host && IsCalled(h, host);
    });
    Print(absl::StrCat(has_ended && !is_this ? "the job has ended after " : "it has left after ", TimeSince(start_ns)));
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("host ", host, " still takes part after ", absl::FormatDuration(patience), kStillAsked));
}

// The first word is a job if there is one of that name, and otherwise a host.
absl::StatusOr<int> Drain(const Arguments& arguments) {
  std::vector<std::string> words = arguments.words;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RunningJob> all, FindJobs(words.empty() ? "" : words[0]));
  const bool names_job = words.size() == 2 || (words.size() == 1 && !JobsNamed(words[0], all).empty());
  LOCKSTEP_ASSIGN_OR_RETURN(const RunningJob job, Choose("drain", names_job ? words[0] : "", all));
  if (names_job) words.erase(words.begin());
  LOCKSTEP_RETURN_IF_ERROR(words.empty() ? DrainThisNode(job) : DrainHost(job, words[0]));
  return 0;
}

// "2:4" or "3", as --nnodes has it.
bool ReadLimits(const std::string& text, int* min_nodes, int* max_nodes) {
  const std::vector<std::string> numbers = absl::StrSplit(text, ':');
  return numbers.size() <= 2 && absl::SimpleAtoi(numbers[0], min_nodes) &&
         absl::SimpleAtoi(numbers.back(), max_nodes) && *min_nodes > 0 && *min_nodes <= *max_nodes;
}

absl::Status ResizeJob(const RunningJob& job, int min_nodes, int max_nodes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                            AskLauncher(job.folder, job.pid, absl::StrCat("resize ", min_nodes, " ", max_nodes)));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string reply, DecodeReply(text));
  Print(reply);
  for (const int64_t deadline_ns = After(kLeaveTime); MonotonicNanos() < deadline_ns; absl::SleepFor(kLook)) {
    const RunningJob seen = LookAtJob(job.folder, job.pid);
    if (absl::IsNotFound(seen.status.status())) return seen.status.status();
    const bool is_done = seen.status.ok() && seen.status->min_nodes == min_nodes && seen.status->max_nodes == max_nodes;
    if (!is_done) continue;
    Print("the job has these limits now");
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the job does not have these limits after ", absl::FormatDuration(kLeaveTime), kStillAsked));
}

absl::StatusOr<int> Resize(const Arguments& arguments) {
  if (arguments.words.empty()) return absl::InvalidArgumentError("resize needs MIN:MAX; launch resize --help");
  int min_nodes = 0, max_nodes = 0;
  const std::string& limits = arguments.words.back();
  if (!ReadLimits(limits, &min_nodes, &max_nodes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resize: expected MIN:MAX, as 2:4, with MIN from 1 to MAX, but found \"", Printable(limits), "\""));
  }
  const std::string name = arguments.words.size() == 2 ? arguments.words[0] : "";
  LOCKSTEP_ASSIGN_OR_RETURN(const RunningJob job, FindJob("resize", name));
  LOCKSTEP_RETURN_IF_ERROR(ResizeJob(job, min_nodes, max_nodes));
  return 0;
}

struct Command {
  const char* usage;
  size_t most_words;
  bool has_json;
  absl::StatusOr<int> (*run)(const Arguments& arguments);  // the exit code
};

const std::map<std::string, Command>& Commands() {
  static const auto& commands = *new std::map<std::string, Command>{
      {"status", {kStatusUsage, 1, true, Status}},
      {"top", {kTopUsage, 1, false, Top}},
      {"drain", {kDrainUsage, 2, false, Drain}},
      {"resize", {kResizeUsage, 2, false, Resize}},
  };
  return commands;
}

}  // namespace

bool IsCommand(const std::string& word) { return Commands().count(word) != 0; }

std::optional<std::string> NearestCommand(const std::string& word) {
  std::vector<std::string> names;
  for (const auto& [name, command] : Commands()) names.push_back(name);
  return NearestName(word, names);
}

int RunCommand(const std::vector<std::string>& args) {
  const Command& command = Commands().at(args[0]);
  const absl::StatusOr<Arguments> arguments = Parse(args, command.most_words, command.has_json);
  if (!arguments.ok()) return Fail(arguments.status());
  if (arguments->help) {
    std::cout << command.usage << std::flush;
    return 0;
  }
  const absl::StatusOr<int> code = command.run(*arguments);
  return code.ok() ? *code : Fail(code.status());
}

}  // namespace lockstep::launch
