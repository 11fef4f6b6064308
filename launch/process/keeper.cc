#include "lockstep/launch/process/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/process/descendants.h"
#include "lockstep/launch/process/job_cgroup.h"

namespace lockstep::launch {
namespace {

// How long killed processes may take to end. One that takes longer is stuck in the kernel.
constexpr absl::Duration kKillWait = absl::Seconds(10);
// The time for killed processes to end after the launcher has ended by itself. It has waited that long already.
constexpr absl::Duration kLateKillWait = absl::Seconds(1);
constexpr absl::Duration kCgroupWait = absl::Seconds(1);
constexpr int kOutputWaitMs = 1000;
// The time that `on_killed` may take.
constexpr int kOnKilledWaitMs = 6000;

// These end the keeper, stop it or have no effect, as without a keeper. SIGPIPE is blocked but not passed on.
constexpr int kNotPassedOn[] = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS,
                                SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,  SIGPIPE, SIGWINCH};

// The signals that a keeper takes with sigwaitinfo. It takes ignored ones too, as they are blocked. The launcher, which
// inherits what is ignored, ignores them.
sigset_t TakenSignals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int signal : kNotPassedOn) sigdelset(&signals, signal);
  return signals;
}

void Block(sigset_t signals, sigset_t* earlier) {
  sigaddset(&signals, SIGPIPE);
  sigprocmask(SIG_BLOCK, &signals, earlier);
}

// A line of less than PIPE_BUF bytes does not block where poll finds room.
void Print(absl::string_view text) {
  const std::string line = absl::StrCat("launch: ", text, "\n");
  pollfd output = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&output, 1, kOutputWaitMs) != 1) return;
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody reads it
}

absl::Status NoProcess(absl::string_view purpose) {
  return absl::ResourceExhaustedError(absl::StrCat("no process ", purpose, ": ", strerror(errno)));
}

class Keeper {
 public:
  // `parent` is the first keeper's pid in the second keeper, and 0 in the first.
  Keeper(pid_t child, pid_t parent, const sigset_t& signals, std::vector<pid_t> spared, const std::string& cgroup,
         const std::function<absl::Status()>& on_killed)
      : child_(child),
        parent_(parent),
        signals_(signals),
        spared_(std::move(spared)),
        cgroup_(cgroup),
        on_killed_(on_killed) {}

  // Returns the exit code of this process once the job has ended.
  int Run() {
    while (!ended_ && !LostParent()) TakeSignal();
    const bool killed = !ended_ || WIFSIGNALED(status_);
    // If the second keeper has ended by itself, it has done all that follows.
    if (parent_ != 0 || killed) EndEverything(killed);
    if (!ended_) return 128 + SIGKILL;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  bool LostParent() const { return parent_ != 0 && getppid() != parent_; }

  void TakeSignal() {
    const int signal = sigwaitinfo(&signals_, nullptr);
    if (signal == SIGCHLD) {
      Reap();
    } else if (signal > 0 && signal != SIGCONT) {
      kill(child_, signal);
    }
  }

  void Reap() {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid != child_) continue;
      ended_ = true;
      status_ = status;
    }
  }

  // The launcher is killed before the ranks: it must neither report their deaths to other hosts nor replace them.
  void EndEverything(bool killed) {
    if (!ended_) kill(child_, SIGKILL);
    if (killed) KillJobCgroup(cgroup_);
    const std::string left = NotEnded(EndDescendants(spared_, killed ? kKillWait : kLateKillWait));
    RemoveJobCgroup(cgroup_, kCgroupWait);
    if (!killed) return;  // the launcher has named what is left
    Print(absl::StrCat(Cause(), "; the ranks and all that they started were killed", left.empty() ? "" : "; ", left));
    if (on_killed_) CallOnKilled();
  }

  // A library that crashes or hangs there changes neither the exit code nor the time of the end.
  void CallOnKilled() {
    const pid_t pid = fork();
    if (pid < 0) return Print(NoProcess("that tells the other hosts").message());
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const absl::Status status = on_killed_();
      if (!status.ok()) Print(status.message());
      _exit(0);
    }
    const UniqueFd pidfd(syscall(SYS_pidfd_open, pid, 0));
    pollfd ended = {pidfd.get(), POLLIN, 0};
    poll(&ended, 1, kOnKilledWaitMs);
    EndDescendants(spared_, kLateKillWait);
  }

  std::string Cause() const {
    if (!ended_) return absl::StrCat("pid ", parent_, ", which kept the launcher, was killed");
    return absl::StrCat("pid ", child_, ", which ", parent_ == 0 ? "kept" : "was",
                        " the launcher, was killed by signal ", WTERMSIG(status_), " (", SignalName(WTERMSIG(status_)),
                        ")");
  }

  const pid_t child_;
  const pid_t parent_;
  const sigset_t signals_;
  const std::vector<pid_t> spared_;
  const std::string& cgroup_;
  const std::function<absl::Status()>& on_killed_;
  bool ended_ = false;  // the child
  int status_ = 0;      // as of waitpid
};

// `name` is what ps and pkill find. The arguments are in one piece of memory.
void TakeName(int argc, char** argv, const std::string& name) {
  prctl(PR_SET_NAME, name.c_str());
  if (argc == 0) return;
  const size_t size = argv[argc - 1] + strlen(argv[argc - 1]) - argv[0];
  memset(argv[0], 0, size);
  memcpy(argv[0], name.data(), std::min(name.size(), size));
}

// Children from before, which are not the job's: a shell that has started them may have become this process by exec.
std::vector<pid_t> EarlierChildren() {
  siginfo_t info;
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return {};
  return ProcessTree().ChildrenOf(getpid());
}

}  // namespace

absl::StatusOr<pid_t> ForkLauncher(int argc, char** argv, const std::string& cgroup,
                                   const std::function<absl::Status()>& on_killed) {
  const sigset_t signals = TakenSignals();
  sigset_t earlier;
  Block(signals, &earlier);
  const pid_t first = getpid();
  const std::vector<pid_t> spared = EarlierChildren();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t second = fork();
  if (second < 0) return NoProcess("for the launcher");
  if (second > 0) _exit(Keeper(second, 0, signals, spared, cgroup, on_killed).Run());

  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGCONT);  // it wakes the second keeper, even if that is stopped
  const pid_t keeper = getpid();
  const pid_t launcher = fork();
  if (launcher < 0) return NoProcess("for the launcher");
  if (launcher > 0) {
    TakeName(argc, argv, "rank-keeper");
    _exit(Keeper(launcher, first, signals, {}, cgroup, on_killed).Run());
  }

  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != keeper) _exit(128 + SIGKILL);
  sigprocmask(SIG_SETMASK, &earlier, nullptr);
  return keeper;
}

}  // namespace lockstep::launch
