#include "lockstep/elastic/chaos/internal/endings.h"

#include <signal.h>

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/board.h"
#include "lockstep/elastic/chaos/internal/victim.h"

namespace lockstep::elastic::chaos::internal {
namespace {

constexpr int kKinds = 4;
constexpr absl::Duration kTraining = absl::Minutes(2);

absl::Duration Below(int64_t ms, std::mt19937_64* random) {
  return absl::Microseconds((*random)() % static_cast<uint64_t>(1000 * ms));
}

int SignalOf(EndingKind kind) {
  if (kind == EndingKind::kCrashInExit) return SIGSEGV;
  return kind == EndingKind::kSlowExit ? SIGSTOP : SIGKILL;
}

// Steps before the last one are begun once. A rank may be killed when it alone has completed the last one.
absl::Status CheckSteps(const Board& board, int64_t last) {
  for (int64_t step = 1; step <= last; ++step) {
    if (board.Commit(step).ns == 0) return absl::InternalError(absl::StrCat("step ", step, " was not completed"));
    if (step < last && board.Begun(step) != 1) {
      return absl::InternalError(absl::StrCat("step ", step, " was begun ", board.Begun(step), " times"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Ending NextEnding(int64_t number, int slots, std::mt19937_64* random) {
  Ending ending;
  ending.kind = static_cast<EndingKind>(number % kKinds);
  ending.slot = static_cast<int>((*random)() % static_cast<uint64_t>(slots));
  ending.delay = Below(ending.kind == EndingKind::kKillAfterLastStep ? 60 : 200, random);
  ending.pause = absl::Seconds(1) + Below(3000, random);
  return ending;
}

std::string EndingText(const Ending& ending) {
  const bool after_step = ending.kind == EndingKind::kKillAfterLastStep;
  const int signal = SignalOf(ending.kind);
  const char* const name = signal == SIGKILL ? "SIGKILL" : signal == SIGSEGV ? "SIGSEGV" : "SIGSTOP";
  return absl::StrCat(name, after_step ? " after the last step, of slot " : " in the exit of slot ", ending.slot,
                      " after ", absl::FormatDuration(ending.delay));
}

absl::StatusOr<bool> DisturbEnding(const Ending& ending, int64_t last, Job* job, StepWatch* watch) {
  Board& board = job->board();
  LOCKSTEP_RETURN_IF_ERROR(watch->Await("the first step", kTraining, [&] { return board.steps() > 0; }));
  const Board::Place& place = board.place(ending.slot);
  const pid_t pid = place.pid;
  for (const int host : job->RunningHosts()) job->ExpectEnd(host);
  const auto is_due = [&] {
    return ending.kind == EndingKind::kKillAfterLastStep ? board.steps() >= last
                                                         : place.stage == static_cast<int>(Stage::kEnds);
  };
  // The watch would take the job's own end for a hang.
  const absl::Time until = absl::Now() + kTraining;
  while (!is_due()) {
    if (absl::Now() > until) return absl::DeadlineExceededError(absl::StrCat("the last step\n", job->Dump()));
    absl::SleepFor(absl::Microseconds(200));
  }
  absl::SleepFor(ending.delay);
  const absl::StatusOr<Victim> victim = Victim::Find(pid, job->marker());
  const bool runs = victim.ok() && !victim->ended();
  if (runs) victim->Signal(SignalOf(ending.kind));
  if (runs && ending.kind == EndingKind::kSlowExit) {
    absl::SleepFor(ending.pause);
    victim->Signal(SIGCONT);
  }
  // It may have ended by itself before the signal.
  const std::vector<int> codes =
      runs && ending.kind == EndingKind::kCrashInExit ? std::vector<int>{0, 128 + SIGSEGV} : std::vector<int>{0};
  LOCKSTEP_RETURN_IF_ERROR(job->AwaitEnd(absl::Minutes(1), codes));
  LOCKSTEP_RETURN_IF_ERROR(CheckSteps(board, last));
  return runs;
}

}  // namespace lockstep::elastic::chaos::internal
