#include "lockstep/launch/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/printable.h"
#include "lockstep/launch/cpu/cpu_topology.h"
#include "lockstep/launch/job/outcome.h"

namespace lockstep::launch {
namespace {

// Everything that the child needs between fork and exec, allocated before the fork.
struct ChildPlan {
  const char* path;
  char* const* argv;
  char* const* environment;
  const int* inherited_fds;  // the last one is -1
  int null_fd;
  int stdout_fd;
  int stderr_fd;
  int error_fd;
  const cpu_set_t* cpus;  // null: the parent's
  size_t cpus_bytes;
  pid_t parent;
  sigset_t mask;
};

// The child's message to its parent if it cannot run its program.
struct StartError {
  int number;        // an errno; 0 if it runs
  bool of_the_cpus;  // the CPUs were refused
};

// exec would do the same, but a signal may come before it, and the parent's handlers must not run here.
void ForgetSignalHandlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL) continue;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }
}

// Async-signal-safe. The last of `fds` is -1.
bool KeepOpen(const int* fds) {
  for (; *fds >= 0; ++fds) {
    if (fcntl(*fds, F_SETFD, 0) != 0) return false;
  }
  return true;
}

// Async-signal-safe. Runs with every signal blocked.
[[noreturn]] void RunChild(const ChildPlan& plan) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent died before prctl, so the kernel would not end this child
  ForgetSignalHandlers();
  const bool bound = !plan.cpus || sched_setaffinity(0, plan.cpus_bytes, plan.cpus) == 0;
  const bool ready = bound && dup2(plan.null_fd, STDIN_FILENO) >= 0 &&
                     (plan.stdout_fd < 0 || dup2(plan.stdout_fd, STDOUT_FILENO) >= 0) &&
                     (plan.stderr_fd < 0 || dup2(plan.stderr_fd, STDERR_FILENO) >= 0) && KeepOpen(plan.inherited_fds) &&
                     sigprocmask(SIG_SETMASK, &plan.mask, nullptr) == 0;
  if (ready) execve(plan.path, plan.argv, plan.environment);
  const StartError error = {errno, !bound};
  while (write(plan.error_fd, &error, sizeof(error)) < 0 && errno == EINTR) {
  }
  _exit(127);
}

// fork(), with the child in a cgroup from its start: to move it there later takes 10 ms, and it could fork before. The
// child of the bare system call has the wrong thread id in its C library, which nothing uses up to exec.
pid_t Fork(int cgroup_fd) {
  if (cgroup_fd < 0) return fork();
  clone_args args = {};
  args.flags = CLONE_INTO_CGROUP;
  args.exit_signal = SIGCHLD;
  args.cgroup = cgroup_fd;
  const pid_t pid = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof(args)));
  return pid >= 0 ? pid : fork();
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

StartError ReadStartError(int fd) {
  StartError error = {0, false};
  ssize_t n;
  do {
    n = read(fd, &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  return n == sizeof(error) ? error : StartError{0, false};
}

void Reap(pid_t pid) {
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status CannotStart(const ProcessSpec& spec, int error) {
  const bool lacks_interpreter = error == ENOENT && access(spec.path.c_str(), F_OK) == 0;
  const std::string message = absl::StrCat(
      "program \"", Printable(spec.argv[0]),
      "\" cannot be started: ", lacks_interpreter ? "there is no such interpreter as it names" : strerror(error));
  if (error == ENOENT) return MarkNotExecuted(absl::NotFoundError(message));
  if (error == EACCES || error == EPERM || error == ENOEXEC) {
    return MarkNotExecuted(absl::PermissionDeniedError(message));
  }
  return absl::ResourceExhaustedError(message);
}

absl::Status CannotBind(const ProcessSpec& spec, int error) {
  return absl::FailedPreconditionError(absl::StrCat("program \"", Printable(spec.argv[0]), "\" cannot run on CPUs ",
                                                    CpuListOf(spec.cpus), ": ", strerror(error)));
}

// The mask as sched_setaffinity reads it; empty if there are no CPUs.
std::vector<cpu_set_t> MaskOf(const std::set<int>& cpus) {
  if (cpus.empty()) return {};
  std::vector<cpu_set_t> mask(*cpus.rbegin() / CPU_SETSIZE + 1);
  memset(mask.data(), 0, mask.size() * sizeof(cpu_set_t));
  for (const int cpu : cpus) CPU_SET_S(cpu, mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

// Without what StartProcess() owns.
ChildPlan PlanOf(const ProcessSpec& spec, const std::vector<cpu_set_t>& cpus) {
  ChildPlan plan = {};
  plan.path = spec.path.c_str();
  plan.stdout_fd = spec.stdout_fd;
  plan.stderr_fd = spec.stderr_fd;
  plan.cpus = cpus.empty() ? nullptr : cpus.data();
  plan.cpus_bytes = cpus.size() * sizeof(cpu_set_t);
  plan.parent = getpid();
  return plan;
}

bool IsExecutableFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

absl::StatusOr<Process> StartProcess(const ProcessSpec& spec) {
  const UniqueFd null_fd = AboveStdio(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  int ends[2] = {-1, -1};
  if (!null_fd.valid() || pipe2(ends, O_CLOEXEC) != 0) return CannotStart(spec, errno);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end = AboveStdio(UniqueFd(ends[1]));
  if (!write_end.valid()) return CannotStart(spec, errno);

  const std::vector<char*> argv = Pointers(spec.argv);
  const std::vector<char*> environment = Pointers(spec.environment);
  const std::vector<cpu_set_t> cpus = MaskOf(spec.cpus);
  std::vector<int> inherited_fds = spec.inherited_fds;
  inherited_fds.push_back(-1);
  ChildPlan plan = PlanOf(spec, cpus);
  plan.argv = argv.data();
  plan.environment = environment.data();
  plan.inherited_fds = inherited_fds.data();
  plan.null_fd = null_fd.get();
  plan.error_fd = write_end.get();
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &plan.mask);
  Process process;
  process.pid = Fork(spec.cgroup_fd);
  if (process.pid == 0) RunChild(plan);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &plan.mask, nullptr);
  if (process.pid < 0) return CannotStart(spec, fork_error);

  write_end.Close();
  StartError error = ReadStartError(read_end.get());
  if (error.number == 0) {
    process.pidfd = UniqueFd(syscall(SYS_pidfd_open, process.pid, 0));
    if (process.pidfd.valid()) return process;
    error.number = errno;
    kill(process.pid, SIGKILL);
  }
  Reap(process.pid);
  return error.of_the_cpus ? CannotBind(spec, error.number) : CannotStart(spec, error.number);
}

absl::StatusOr<std::string> FindProgram(absl::string_view program) {
  const char* path = getenv("PATH");
  const bool search = program.find('/') == absl::string_view::npos;
  std::vector<std::string> candidates = {std::string(program)};
  if (search && !program.empty()) {
    candidates.clear();
    for (absl::string_view folder : absl::StrSplit(path ? path : "/bin:/usr/bin", ':')) {
      candidates.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", program));
    }
  }
  std::string denied;
  for (const std::string& candidate : candidates) {
    if (IsExecutableFile(candidate)) return candidate;
    if (access(candidate.c_str(), F_OK) == 0) denied = candidate;
  }
  if (!denied.empty()) {
    return MarkNotExecuted(
        absl::PermissionDeniedError(absl::StrCat("program \"", Printable(denied), "\" is not an executable file")));
  }
  const std::string here = absl::StrCat("./", program);
  const std::string hint =
      search && !program.empty() && access(here.c_str(), F_OK) == 0 ? absl::StrCat("; did you mean ", here, "?") : "";
  return MarkNotExecuted(absl::NotFoundError(
      absl::StrCat("program \"", Printable(program), "\" not found", search ? " in PATH" : "", Printable(hint))));
}

}  // namespace lockstep::launch
