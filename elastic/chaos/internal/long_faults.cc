// Faults of Injector that take long, or that bring somebody else.

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/injector.h"

namespace lockstep::elastic::chaos::internal {
namespace {

constexpr absl::Duration kAllTrain = absl::Minutes(3);
// Until a launcher that is refused has ended.
constexpr absl::Duration kRefused = absl::Seconds(30);
constexpr int kRefusedCode = 2;

}  // namespace

// Without --stall-timeout the ranks go on when it wakes up.
absl::Status Injector::LetSleep(const Target& target, Injected* done) {
  const std::string asleep = absl::StrCat("rank ", target.member.rank, " (host ");
  const std::string line = "no step for 3";
  const int before = job_.CountLines(line);
  LOCKSTEP_RETURN_IF_ERROR(Send(target, Order::kSleep, done));
  if (!job_.replaces_stalled()) {
    done->generation = 0;
    const int64_t until_ns = done->ns + int64_t{kSleepSeconds} * 1'000'000'000;
    LOCKSTEP_RETURN_IF_ERROR(watch_.AwaitStep(until_ns, 0).status());
  } else {
    LOCKSTEP_RETURN_IF_ERROR(watch_.AwaitStep(done->ns, done->generation).status());
  }
  if (job_.CountLines(line) == before) {
    return absl::InternalError(absl::StrCat("no line says that there is no step while ", asleep, "...) sleeps"));
  }
  return absl::OkStatus();
}

absl::Status Injector::AwaitWhole() {
  const auto is_whole = [this] {
    return job_.IsWhole() && job_.RunningHosts().size() == static_cast<size_t>(job_.hosts()) &&
           job_.board().Commit(job_.board().steps()).value == job_.board().generation();
  };
  return watch_.Await("all ranks train", kAllTrain, is_whole);
}

// The others go on without a host. When packets arrive again, its launcher is started again, as it would wait for a
// minute and longer.
absl::StatusOr<Injected> Injector::Cut(const Fault& fault) {
  LOCKSTEP_RETURN_IF_ERROR(AwaitWhole());
  Injected done;
  std::vector<std::string> names;
  const std::vector<std::pair<int, int>> cuts = CutsOf(fault, job_.hosts());
  for (const auto& [from, to] : cuts) {
    LOCKSTEP_RETURN_IF_ERROR(job_.network()->CutPath(from + 1, to + 1));
    names.push_back(absl::StrCat(from, " to ", to));
  }
  done.ranks = static_cast<int>(job_.Members().size());
  done.victim = absl::StrCat("host ", absl::StrJoin(names, ", "));
  done.generation = job_.board().generation();
  done.ns = MonotonicNanos();
  const absl::StatusOr<int64_t> step = watch_.AwaitStep(done.ns, done.generation);
  const std::vector<Member> members = job_.Members();
  for (const auto& [from, to] : cuts) LOCKSTEP_RETURN_IF_ERROR(job_.network()->MendPath(from + 1, to + 1));
  LOCKSTEP_RETURN_IF_ERROR(step.status());
  std::vector<int> left_out = job_.RunningHosts();
  for (const Member& member : members) {
    left_out.erase(std::remove(left_out.begin(), left_out.end(), job_.HostOf(member.slot)), left_out.end());
  }
  if (members.empty() || left_out.empty()) {
    return absl::InternalError(absl::StrCat("no host was left out\n", job_.Dump()));
  }
  for (const int host : left_out) LOCKSTEP_RETURN_IF_ERROR(StartHostAgain(host));
  return done;
}

absl::Status Injector::StartHostAgain(int number) {
  HostTarget target;
  const auto is_found = [&] { return FindHost(number, &target); };
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await("the processes of a host", kRefused, is_found));
  job_.ExpectEnd(number);
  target.launcher[0].Signal(SIGTERM);
  LOCKSTEP_RETURN_IF_ERROR(AwaitDrained(target, 0));
  job_.StartAgain(number, absl::ZeroDuration());
  return absl::OkStatus();
}

// It runs another program, and is refused. The others complete steps meanwhile, in the same generation.
absl::StatusOr<Injected> Injector::BringStranger(const Fault& fault) {
  LOCKSTEP_RETURN_IF_ERROR(AwaitWhole());
  Injected done;
  done.ranks = static_cast<int>(job_.Members().size());
  const int64_t generation = job_.board().generation();
  const int host = static_cast<int>(fault.choice % job_.hosts());
  std::vector<std::string> command = job_.meeting()->Arguments(host, job_.hosts());
  command.insert(command.end(), {"sleep", "100"});
  LOCKSTEP_ASSIGN_OR_RETURN(done.pid, job_.StartCommand(command, host));
  done.victim = absl::StrCat("beside host ", host);
  int wait_status = 0;
  const auto has_ended = [&] { return waitpid(done.pid, &wait_status, WNOHANG) == done.pid; };
  LOCKSTEP_RETURN_IF_ERROR(watch_.Await("the end of a launcher of another job", kRefused, has_ended));
  if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != kRefusedCode) {
    return absl::InternalError(absl::StrCat("a launcher of another job ended with wait status ", wait_status,
                                            "; expected exit code ", kRefusedCode));
  }
  done.ns = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(watch_.AwaitStep(done.ns, 0).status());
  if (job_.board().generation() != generation) {
    return absl::InternalError(absl::StrCat("a launcher of another job disturbed the training\n", job_.Dump()));
  }
  return done;
}

}  // namespace lockstep::elastic::chaos::internal
