#include "lockstep/elastic/chaos/internal/injector.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/status.h"
#include "lockstep/tools/launch/internal/unique_fd.h"

namespace lockstep::elastic::chaos::internal {
namespace {

// How long a process may take to start, with LibTorch, on a machine with other work.
constexpr absl::Duration kStart = absl::Minutes(2);
// How long an order may take to be carried out: a step.
constexpr absl::Duration kObey = absl::Seconds(30);
constexpr char kDevShmSize[] = "size=4m";

bool IsStop(FaultKind kind) {
  return kind == FaultKind::kStop || kind == FaultKind::kStopAndKill || kind == FaultKind::kStopTooLong;
}

}  // namespace

absl::Status MountPrivateDevShm() {
  if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      mount("chaos", "/dev/shm", "tmpfs", 0, kDevShmSize) == 0) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("no private /dev/shm: ", strerror(errno)));
}

// Members may end by themselves meanwhile, since the fault before may have more consequences.
absl::StatusOr<std::vector<Injector::Target>> Injector::FindTargets(const Fault& fault, int* ranks) {
  std::vector<Target> targets;
  const auto found = [&] {
    const std::vector<Member> members = job_.Members();
    *ranks = static_cast<int>(members.size());
    if (*ranks < RanksNeeded(fault.kind)) return false;
    // Pauses that follow one another without a step would look like a hang.
    const Moment last = job_.board().Commit(job_.board().steps());
    if (IsStop(fault.kind) && last.value < job_.board().generation()) return false;
    targets.clear();
    for (const Member& member : members) {
      absl::StatusOr<Victim> victim = Victim::Find(member.pid, job_.marker());
      if (!victim.ok() || victim->ended()) return false;
      targets.push_back({member, *std::move(victim)});
    }
    return true;
  };
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await(absl::StrCat(RanksNeeded(fault.kind), " ranks that train"), kStart, found));
  std::vector<Target> hit;
  for (const int rank : Victims(fault, *ranks)) hit.push_back(std::move(targets[rank]));
  return hit;
}

absl::StatusOr<Injected> Injector::Inject(const Fault& fault) {
  Injected done;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Target> targets, FindTargets(fault, &done.ranks));
  LOCKSTEP_RETURN_IF_ERROR(Carry(fault, targets, &done));
  return done;
}

absl::Status Injector::Carry(const Fault& fault, const std::vector<Target>& targets, Injected* done) {
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kKillRank0:
    case FaultKind::kKillTwo:
    case FaultKind::kKillAllButOne:
      Hit(targets, SIGKILL, done);
      return absl::OkStatus();
    case FaultKind::kSegv:
      Hit(targets, SIGSEGV, done);
      return absl::OkStatus();
    case FaultKind::kAbort:
      Hit(targets, SIGABRT, done);
      return absl::OkStatus();
    case FaultKind::kKillInRegroup:
    case FaultKind::kKillBesideNewcomer:
      return HitBeside(fault, targets, done);
    case FaultKind::kKillAtStart:
    case FaultKind::kKillNewcomer:
      return HitAgain(fault, targets[0], done);
    case FaultKind::kStop:
    case FaultKind::kStopAndKill:
    case FaultKind::kStopTooLong:
      return Stop(fault, targets, done);
    case FaultKind::kExit0:
      return Tell(targets[0], Order::kExit0, done);
    case FaultKind::kExit1:
      return Tell(targets[0], Order::kExit1, done);
    case FaultKind::kThrow:
      return Tell(targets[0], Order::kThrow, done);
    case FaultKind::kOutOfMemory:
      return Tell(targets[0], Order::kAllocate, done);
    case FaultKind::kFewDescriptors:
      targets[0].victim.TakeDescriptors();
      Hit(targets[1], SIGKILL, done);
      return absl::OkStatus();
    case FaultKind::kFullDevShm:
      return FillDevShm(targets[0], done);
  }
  return absl::InternalError("chaos: no such fault");
}

void Injector::Hit(const Target& target, int signal, Injected* done) {
  done->rank = target.member.rank;
  done->pid = target.member.pid;
  done->generation = job_.board().place(target.member.slot).generation;
  done->ns = NowNanos();
  target.victim.Signal(signal);
}

void Injector::Hit(const std::vector<Target>& targets, int signal, Injected* done) {
  for (const Target& target : targets) Hit(target, signal, done);
}

absl::StatusOr<Victim> Injector::AwaitNext(const Member& member, bool joins) {
  std::optional<Victim> next;
  const auto is_there = [&] {
    const pid_t pid = job_.LastStarted(member.slot);
    if (pid == member.pid) return false;
    if (joins && (job_.board().place(member.slot).pid != pid ||
                  job_.board().place(member.slot).stage < static_cast<int>(Stage::kJoins))) {
      return false;
    }
    absl::StatusOr<Victim> found = Victim::Find(pid, job_.marker());
    if (!found.ok()) return false;
    next = *std::move(found);
    return true;
  };
  LOCKSTEP_RETURN_IF_ERROR(
      watch_.Await(absl::StrCat("the process that follows process ", member.pid), kStart, is_there));
  return *std::move(next);
}

// The process after it does not train yet, so the others complete the next step without it.
absl::Status Injector::HitAgain(const Fault& fault, const Target& target, Injected* done) {
  Hit(target, SIGKILL, done);
  LOCKSTEP_ASSIGN_OR_RETURN(const Victim next, AwaitNext(target.member, fault.kind == FaultKind::kKillNewcomer));
  LOCKSTEP_RETURN_IF_ERROR(watch_.Sleep(fault.delay));
  done->pid = next.pid();
  done->generation = 0;
  done->ns = NowNanos();
  next.Signal(SIGKILL);
  return absl::OkStatus();
}

// The second one dies while the others regroup, or while they heal the process that follows the first one.
absl::Status Injector::HitBeside(const Fault& fault, const std::vector<Target>& targets, Injected* done) {
  Hit(targets[0], SIGKILL, done);
  if (fault.kind == FaultKind::kKillBesideNewcomer) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitNext(targets[0].member, /*joins=*/true).status());
  }
  LOCKSTEP_RETURN_IF_ERROR(watch_.Sleep(fault.delay));
  Hit(targets[1], SIGKILL, done);
  return absl::OkStatus();
}

absl::Status Injector::Stop(const Fault& fault, const std::vector<Target>& targets, Injected* done) {
  Hit(targets[0], SIGSTOP, done);
  if (fault.kind != FaultKind::kStop) Hit(targets[1], SIGKILL, done);
  const absl::Status slept = watch_.Sleep(fault.delay);
  // A stopped process would be left behind.
  targets[0].victim.Signal(SIGCONT);
  LOCKSTEP_RETURN_IF_ERROR(slept);
  if (fault.kind == FaultKind::kStopTooLong) {
    return watch_.Await("the end of a rank that did not leave its generation", absl::Seconds(5),
                        [&] { return targets[0].victim.ended(); });
  }
  done->ns = NowNanos();
  if (fault.kind == FaultKind::kStop) done->generation = 0;
  return absl::OkStatus();
}

absl::Status Injector::Tell(const Target& target, Order order, Injected* done) {
  Board::Place& place = job_.board().place(target.member.slot);
  done->rank = target.member.rank;
  done->pid = target.member.pid;
  done->generation = place.generation;
  job_.board().Give(target.member.slot, target.member.pid, order);
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await("a rank that does what it was told", kObey,
                                        [&] { return place.obeyed_ns != 0 || target.victim.ended(); }));
  done->ns = place.obeyed_ns != 0 ? place.obeyed_ns.load() : NowNanos();
  return absl::OkStatus();
}

absl::Status Injector::FillDevShm(const Target& target, Injected* done) {
  const std::string path = "/dev/shm/chaos";
  {
    const launch::internal::UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string block(1 << 16, 'x');
    while (write(file.get(), block.data(), block.size()) > 0) {
    }
  }
  Hit(target, SIGKILL, done);
  const absl::Status recovered = watch_.AwaitStep(done->ns, done->generation).status();
  unlink(path.c_str());
  return recovered;
}

}  // namespace lockstep::elastic::chaos::internal
