#include "lockstep/launch/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/node/rank_variables.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/launch/report/report_file.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep::launch {
namespace {

// The calls of Spawn in this process so far. A rank must find the call that started it. "name#2" is the second call
// with that name.
struct Calls {
  std::map<std::string, int> count;             // by name
  std::map<std::string, absl::Status> results;  // by "name#number"
  bool inside_rank = false;
};

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);

Calls& CallsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static Calls& calls = *new Calls;
  return calls;
}

std::string NumberThisCall(const std::string& name) {
  MutexLock lock(mutex);
  return absl::StrCat(name, "#", ++CallsLocked().count[name]);
}

// One line for each call: key, status code, message. They are escaped, so that tabs and line breaks separate them.
std::string EncodeResults() {
  MutexLock lock(mutex);
  std::string text;
  for (const auto& [key, status] : CallsLocked().results) {
    absl::StrAppend(&text, absl::CEscape(key), "\t", status.raw_code(), "\t", absl::CEscape(status.message()), "\n");
  }
  return text;
}

// The result of the call `key` in the parent of this rank.
std::optional<absl::Status> ResultInParent(const std::string& key) {
  const char* text = getenv(kSpawnResultsVariable);
  for (absl::string_view line : absl::StrSplit(text ? text : "", '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    int code;
    std::string message;
    if (fields.size() != 3 || fields[0] != absl::CEscape(key) || !absl::SimpleAtoi(fields[1], &code)) continue;
    absl::CUnescape(fields[2], &message);
    return absl::Status(static_cast<absl::StatusCode>(code), message);
  }
  return std::nullopt;
}

// The call that started this process, or nullopt if the process is not a rank of Spawn. A process that a rank starts
// inherits the variable but is not a rank, so the variable contains the pid of the ranks' parent.
std::optional<std::string> CallOfThisRank() {
  const char* variable = getenv(kSpawnCallVariable);
  absl::string_view call = variable ? variable : "";
  if (!absl::ConsumePrefix(&call, absl::StrCat(getppid(), " "))) return std::nullopt;
  return std::string(call);
}

absl::StatusOr<std::vector<std::string>> CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) return absl::FailedPreconditionError("Spawn: this process's command line cannot be read");
  if (text.back() == '\0') text.pop_back();
  return absl::StrSplit(text, '\0');
}

// LibTorch's exceptions have their C++ stack after the message. That of a failed allocation has no heading.
absl::string_view WithoutStack(absl::string_view what) {
  return what.substr(0, std::min(what.find("\nException raised from "), what.find("\nframe #")));
}

// The exception that is being handled.
absl::Status ExceptionStatus(absl::string_view kind) {
  try {
    throw;
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat(kind, ": ", WithoutStack(e.what())));
  } catch (...) {
    return absl::InternalError(absl::StrCat(kind, " that is not a std::exception"));
  }
}

std::terminate_handler earlier_terminate_handler = nullptr;

[[noreturn]] void ReportAndTerminate() {
  const bool threw = std::current_exception() != nullptr;
  ReportError(threw ? ExceptionStatus("uncaught exception") : absl::InternalError("std::terminate was called"));
  if (earlier_terminate_handler) earlier_terminate_handler();
  std::abort();
}

// An exception in another thread, or in a noexcept function, does not return to Run().
void ReportUncaughtExceptions() {
  if (std::get_terminate() != ReportAndTerminate) earlier_terminate_handler = std::set_terminate(ReportAndTerminate);
}

absl::Status Run(const std::function<absl::Status(int)>& fn, int local_rank) {
  ReportUncaughtExceptions();
  try {
    return fn(local_rank);
  } catch (...) {
    return ExceptionStatus("exception");
  }
}

// A process started as /proc/self/exe is called "exe" in ps and top.
void TakeProgramsName() {
  const absl::StatusOr<std::vector<std::string>> argv = CommandLine();
  if (argv.ok()) prctl(PR_SET_NAME, (*argv)[0].substr((*argv)[0].rfind('/') + 1).c_str());
}

[[noreturn]] void RunRank(const std::function<absl::Status(int)>& fn) {
  {
    MutexLock lock(mutex);
    CallsLocked().inside_rank = true;
  }
  TakeProgramsName();
  const char* variable = getenv("LOCAL_RANK");
  int local_rank = 0;
  absl::Status status = absl::InternalError("Spawn: LOCAL_RANK has been changed");
  if (variable && absl::SimpleAtoi(variable, &local_rank)) status = Run(fn, local_rank);
  WriteReport(status);
  fflush(nullptr);
  std::exit(status.ok() ? 0 : 1);
}

// How launchers tell a process that it is one of several ranks. Hydra (MPICH, Intel) and mpirun may start their own
// helpers with srun, whose numbers the ranks inherit, so srun comes last.
struct RankVariables {
  const char* world_size;
  const char* local_rank;
};
constexpr RankVariables kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_SIZE", "MPI_LOCALRANKID"},
    {"PMI_SIZE", "PMI_LOCAL_RANK"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

// The name of the variable with the local rank, which may be unset under torchrun. Null if no launcher has started this
// process as a rank. A single task of srun or mpirun is a program that may start its own ranks.
const char* LocalRankVariable() {
  if (getenv("RANK")) return "LOCAL_RANK";
  for (const RankVariables& launcher : kLaunchers) {
    const char* world_size = getenv(launcher.world_size);
    int ranks = 0;
    if (!world_size || !absl::SimpleAtoi(world_size, &ranks)) continue;
    if (ranks > 1 && getenv(launcher.local_rank)) return launcher.local_rank;
  }
  return nullptr;
}

void PrintToStderr(const absl::Status& status) { fprintf(stderr, "%s\n", std::string(status.message()).c_str()); }

absl::Status SpawnRanks(int nprocs, const std::string& key, const SpawnOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> argv, CommandLine());
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  LaunchOptions launch;
  launch.nproc_per_node = nprocs;
  launch.nnodes = options.nnodes;
  launch.node_rank = options.node_rank;
  launch.master_addr = options.master_addr;
  launch.master_port = options.master_port;
  launch.grace = options.grace;
  launch.failure_grace = options.failure_grace;
  launch.on_failure = options.on_failure ? options.on_failure : PrintToStderr;
  launch.on_notice = [](const std::string& notice) { fprintf(stderr, "%s\n", notice.c_str()); };
  launch.environment = options.environment;
  launch.environment[kSpawnCallVariable] = absl::StrCat(getpid(), " ", key);
  launch.environment[kSpawnResultsVariable] = EncodeResults();
  launch.executable = "/proc/self/exe";
  launch.pass_master_socket = true;
  launch.require_report = true;
  return Launch(argv, launch);
}

}  // namespace

absl::Status Spawn(int nprocs, const std::function<absl::Status(int local_rank)>& fn, const SpawnOptions& options) {
  const std::string key = NumberThisCall(options.name);
  if (const std::optional<std::string> mine = CallOfThisRank()) {
    {
      MutexLock lock(mutex);
      if (CallsLocked().inside_rank) {
        return absl::FailedPreconditionError(
            absl::StrCat("Spawn was called inside a rank of Spawn call ", *mine, "; a rank cannot spawn ranks"));
      }
    }
    if (key == *mine) RunRank(fn);
    if (const std::optional<absl::Status> result = ResultInParent(key)) return *result;
    return absl::FailedPreconditionError(
        absl::StrCat("a rank of Spawn call ", *mine, " came to call ", key,
                     ", which its parent had not made: main must take the same way in both"));
  }
  absl::Status status = SpawnRanks(nprocs, key, options);
  MutexLock lock(mutex);
  CallsLocked().results[key] = status;
  return status;
}

absl::Status SpawnUnlessLaunched(int nprocs, const std::function<absl::Status(int local_rank)>& fn,
                                 const SpawnOptions& options) {
  if (CallOfThisRank()) return Spawn(nprocs, fn, options);
  const char* variable = LocalRankVariable();
  if (!variable) return Spawn(nprocs, fn, options);
  const char* text = getenv(variable);
  int local_rank = 0;
  if (text && !absl::SimpleAtoi(text, &local_rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("environment variable ", variable, "=\"", text, "\" is not a number"));
  }
  const absl::Status status = Run(fn, local_rank);
  ReportError(status);
  return status;
}

}  // namespace lockstep::launch
