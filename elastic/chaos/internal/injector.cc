#include "lockstep/elastic/chaos/internal/injector.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/inspect.h"

namespace lockstep::elastic::chaos::internal {
namespace {

// How long a process may take to start, with LibTorch, on a machine with other work.
constexpr absl::Duration kStart = absl::Minutes(2);
// How long an order may take to be carried out: a step.
constexpr absl::Duration kObey = absl::Seconds(30);
constexpr char kDevShmSize[] = "size=4m";
// How long the processes of a host may outlive its launcher, and a drained host may take to leave: a step, --grace, and
// what a machine with other work adds.
constexpr absl::Duration kGone = absl::Seconds(10), kLeave = absl::Seconds(32);

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

bool Injector::FindMembers(const std::vector<Member>& members, std::vector<Target>* targets) const {
  targets->clear();
  for (const Member& member : members) {
    absl::StatusOr<Victim> victim = Victim::Find(member.pid, job_.marker());
    if (!victim.ok() || victim->ended()) return false;
    targets->push_back({member, *std::move(victim)});
  }
  return true;
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
    return FindMembers(members, &targets);
  };
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await(absl::StrCat(RanksNeeded(fault.kind), " ranks that train"), kStart, found));
  std::vector<Target> hit;
  for (const int rank : Victims(fault, *ranks)) hit.push_back(std::move(targets[rank]));
  return hit;
}

absl::StatusOr<Injected> Injector::Inject(const Fault& fault) {
  if (fault.kind == FaultKind::kStranger) return BringStranger(fault);
  if (IsCut(fault.kind)) return Cut(fault);
  if (HostsNeeded(fault.kind) > 0) return InjectHosts(fault);
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
      return Send(targets[0], Order::kExit0, done);
    case FaultKind::kExit1:
      return Send(targets[0], Order::kExit1, done);
    case FaultKind::kThrow:
      return Send(targets[0], Order::kThrow, done);
    case FaultKind::kOutOfMemory:
      return Send(targets[0], Order::kAllocate, done);
    case FaultKind::kFewDescriptors:
      targets[0].victim.TakeDescriptors();
      Hit(targets[1], SIGKILL, done);
      return absl::OkStatus();
    case FaultKind::kFullDevShm:
      return FillDevShm(targets[0], done);
    case FaultKind::kSleep:
      return LetSleep(targets[0], done);
    default:
      break;
  }
  return absl::InternalError("chaos: no such fault");
}

void Injector::Hit(const Target& target, int signal, Injected* done) {
  done->victim = absl::StrCat("rank ", target.member.rank);
  done->pid = target.member.pid;
  done->generation = job_.board().place(target.member.slot).generation;
  done->ns = MonotonicNanos();
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
  done->ns = MonotonicNanos();
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
  // One that had left its generation before it was stopped is awaited as long as it takes.
  const bool must_leave = job_.board().place(targets[0].member.slot).stage == static_cast<int>(Stage::kTrains);
  // A stopped process would be left behind.
  targets[0].victim.Signal(SIGCONT);
  LOCKSTEP_RETURN_IF_ERROR(slept);
  if (fault.kind == FaultKind::kStopTooLong) {
    if (!must_leave) return absl::OkStatus();
    return watch_.Await("the end of a rank that did not leave its generation", absl::Seconds(5),
                        [&] { return targets[0].victim.ended(); });
  }
  done->ns = MonotonicNanos();
  if (fault.kind == FaultKind::kStop) done->generation = 0;
  return absl::OkStatus();
}

absl::Status Injector::Send(const Target& target, Order order, Injected* done) {
  Board::Place& place = job_.board().place(target.member.slot);
  done->victim = absl::StrCat("rank ", target.member.rank);
  done->pid = target.member.pid;
  done->generation = place.generation;
  job_.board().Give(target.member.slot, target.member.pid, order);
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await("a rank that does what it was told", kObey,
                                        [&] { return place.obeyed_ns != 0 || target.victim.ended(); }));
  done->ns = place.obeyed_ns != 0 ? place.obeyed_ns.load() : MonotonicNanos();
  return absl::OkStatus();
}

absl::Status Injector::FillDevShm(const Target& target, Injected* done) {
  const std::string path = "/dev/shm/chaos";
  {
    const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string block(1 << 16, 'x');
    while (write(file.get(), block.data(), block.size()) > 0) {
    }
  }
  Hit(target, SIGKILL, done);
  const absl::Status recovered = watch_.AwaitStep(done->ns, done->generation).status();
  unlink(path.c_str());
  return recovered;
}

bool Injector::FindHost(int number, HostTarget* target) const {
  target->number = number;
  const std::string marker = job_.host(number).marker();
  const auto find = [&](const std::vector<pid_t>& pids, std::vector<Victim>* victims) {
    for (const pid_t pid : pids) {
      absl::StatusOr<Victim> victim = Victim::Find(pid, marker);
      if (victim.ok()) victims->push_back(*std::move(victim));
    }
    return !victims->empty();
  };
  return find(job_.host(number).LauncherProcesses(), &target->launcher) &&
         find(ProcessesWith(marker), &target->processes);
}

// A step that a planned fault finds must not be repeated because of the fault before. So all must be well.
absl::StatusOr<Injector::HostTargets> Injector::FindHosts(const Fault& fault, int* ranks) {
  HostTargets targets;
  const auto found = [&] {
    const std::vector<Member> members = job_.Members();
    const Moment last = job_.board().Commit(job_.board().steps());
    if (last.value < job_.board().generation() || (IsPlanned(fault.kind) && !job_.IsWhole())) return false;
    std::vector<Target> all;
    if (!FindMembers(members, &all)) return false;
    WorldView world;
    for (const Member& member : members) world.host_of_rank.push_back(job_.HostOf(member.slot));
    world.hosts = job_.RunningHosts();
    world.spared = job_.meeting()->spared();
    if (fault.kind == FaultKind::kKillLeader) world.leader = job_.meeting()->Leader().value_or(-1);
    const HostVictims victims = VictimsOf(fault, world);
    if (victims.hosts.empty()) return false;
    targets = {};
    for (const int rank : victims.ranks) targets.ranks.push_back(std::move(all[rank]));
    for (const int host : victims.hosts) {
      if (!FindHost(host, &targets.hosts.emplace_back())) return false;
    }
    *ranks = static_cast<int>(members.size());
    return true;
  };
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await("enough hosts that train", kStart, found));
  return targets;
}

absl::StatusOr<Injected> Injector::InjectHosts(const Fault& fault) {
  Injected done;
  LOCKSTEP_ASSIGN_OR_RETURN(const HostTargets targets, FindHosts(fault, &done.ranks));
  if (IsPlanned(fault.kind)) {
    LOCKSTEP_RETURN_IF_ERROR(Drain(fault, targets.hosts[0], &done));
    return done;
  }
  if (fault.kind == FaultKind::kKillHostBesideNewcomer) {
    LOCKSTEP_RETURN_IF_ERROR(KillBesideNewcomer(fault, targets, &done));
    return done;
  }
  done.generation = job_.board().generation();
  Hit(targets.ranks, SIGKILL, &done);
  for (const HostTarget& target : targets.hosts) KillHost(fault, target, &done);
  for (const HostTarget& target : targets.hosts) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitGone(target));
    job_.StartAgain(target.number, fault.pause);
  }
  return done;
}

// Each of the launcher's processes ends the others and the ranks when it sees the death of one of them.
void Injector::KillHost(const Fault& fault, const HostTarget& target, Injected* done) {
  const Victim& victim = target.launcher[(fault.choice >> 32) % target.launcher.size()];
  job_.ExpectEnd(target.number);
  done->victim = absl::StrCat("host ", target.number);
  done->pid = victim.pid();
  done->ns = MonotonicNanos();
  victim.Signal(SIGKILL);
}

absl::Status Injector::AwaitGone(const HostTarget& target) {
  Host& host = job_.host(target.number);
  const auto are_gone = [&] {
    return !host.runs() && std::all_of(target.processes.begin(), target.processes.end(),
                                       [](const Victim& process) { return process.ended(); });
  };
  const std::string what = absl::StrCat("the end of all processes of host ", target.number);
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await(what, kGone, are_gone));
  // Also of those that were started meanwhile.
  return watch_.Await(what, kGone, [&] { return ProcessesWith(host.marker()).empty(); });
}

// The second host dies when a process of the first one joins, or is about to be healed.
absl::Status Injector::KillBesideNewcomer(const Fault& fault, const HostTargets& targets, Injected* done) {
  const int first = targets.hosts[0].number;
  KillHost(fault, targets.hosts[0], done);
  LOCKSTEP_RETURN_IF_ERROR(AwaitGone(targets.hosts[0]));
  job_.StartAgain(first, absl::ZeroDuration());
  const auto joins = [&] {
    for (int slot = 0; slot < kMostSlots; ++slot) {
      if (job_.IsLost(first) || job_.HostOf(slot) != first) continue;
      const Board::Place& place = job_.board().place(slot);
      if (place.pid != 0 && place.pid == job_.LastStarted(slot) && place.stage >= static_cast<int>(Stage::kJoins) &&
          EnvironmentContains(place.pid, job_.host(first).marker())) {
        return true;
      }
    }
    return false;
  };
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await(absl::StrCat("a process of host ", first, " that joins"), kStart, joins));
  LOCKSTEP_RETURN_IF_ERROR(watch_.Sleep(fault.delay));
  done->generation = job_.board().generation();
  KillHost(fault, targets.hosts[1], done);
  LOCKSTEP_RETURN_IF_ERROR(AwaitGone(targets.hosts[1]));
  job_.StartAgain(targets.hosts[1].number, fault.pause);
  return absl::OkStatus();
}

absl::Status Injector::AwaitDrained(const HostTarget& target, pid_t command) {
  Host& host = job_.host(target.number);
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await(absl::StrCat("the end of host ", target.number, ", which was drained"), kLeave,
                                        [&] { return !host.runs(); }));
  if (!host.ExitedWith(128 + SIGTERM)) {
    return absl::InternalError(absl::StrCat("the launcher of host ", target.number, ", which was drained, ",
                                            host.EndText(), "; expected exit code ", 128 + SIGTERM));
  }
  LOCKSTEP_RETURN_IF_ERROR(AwaitGone(target));
  int wait_status = 0;
  if (command == 0) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await("the end of launch drain", kLeave,
                                        [&] { return waitpid(command, &wait_status, WNOHANG) == command; }));
  return wait_status == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("launch drain failed\n", job_.Dump()));
}

// The ranks leave after a step, so rank 0 has begun each step once. It may have begun a step already.
absl::Status Injector::Drain(const Fault& fault, const HostTarget& target, Injected* done) {
  Board& board = job_.board();
  const int64_t first = board.steps() + 2;
  done->victim = absl::StrCat("host ", target.number);
  done->pid = job_.host(target.number).pid();
  done->generation = board.generation();
  done->ns = MonotonicNanos();
  job_.ExpectEnd(target.number);
  pid_t command = 0;
  if (fault.kind == FaultKind::kTermHost) {
    target.launcher[0].Signal(SIGTERM);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(command, job_.StartCommand({"drain", absl::StrCat(done->pid)}));
  }
  LOCKSTEP_RETURN_IF_ERROR(AwaitDrained(target, command));
  LOCKSTEP_RETURN_IF_ERROR(watch_.AwaitStep(done->ns, done->generation).status());
  for (int64_t step = first; step <= board.steps(); ++step) {
    if (board.Begun(step) == 1) continue;
    return absl::InternalError(absl::StrCat("step ", step, " was begun ", board.Begun(step), " times while host ",
                                            target.number, " was drained\n", job_.Dump()));
  }
  job_.StartAgain(target.number, fault.pause);
  return absl::OkStatus();
}

}  // namespace lockstep::elastic::chaos::internal
