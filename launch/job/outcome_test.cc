#include "lockstep/launch/job/outcome.h"

#include <signal.h>

#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/launch/report/failure.h"

namespace lockstep::launch {
namespace {

Outcome Running(int rank) {
  Outcome outcome;
  outcome.end.local_rank = outcome.end.rank = rank;
  outcome.end.pid = 4700 + rank;
  return outcome;
}

Outcome Ended(int rank, int exit_code, int signal, int64_t time_ns) {
  Outcome outcome = Running(rank);
  outcome.ended = true;
  outcome.end.exit_code = exit_code;
  outcome.end.signal = signal;
  outcome.failed = exit_code != 0;
  outcome.time_ns = time_ns;
  return outcome;
}

Outcome EndedByUs(int rank) {
  Outcome outcome = Ended(rank, -1, SIGTERM, 1000);
  outcome.told_to_end = true;
  return outcome;
}

std::string Line(const std::vector<Outcome>& outcomes) {
  const absl::Status status = FailureStatus(*FirstCause(outcomes), outcomes, absl::Seconds(2));
  return std::string(status.message());
}

TEST(FirstCause, IsNobodyWhenNobodyFailed) { EXPECT_EQ(FirstCause({Running(0), Ended(1, 0, 0, 5)}), nullptr); }

TEST(FirstCause, IsTheEarliestToExit) {
  const std::vector<Outcome> outcomes = {Ended(0, 1, 0, 20), Ended(1, 3, 0, 10), Ended(2, 0, 0, 5)};
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 1);
}

TEST(FirstCause, IsARankKilledByASignalBeforeOneThatExitedEarlier) {
  const std::vector<Outcome> outcomes = {Ended(0, 1, 0, 10), Ended(1, -1, SIGKILL, 13), Ended(2, -1, SIGSEGV, 14)};
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 1);
}

TEST(FirstCause, IsCertainAfterASignalThatOnlyTheRankGot) {
  EXPECT_TRUE(IsCertain(Ended(0, -1, SIGKILL, 10)));
  EXPECT_TRUE(IsCertain(Ended(0, -1, SIGSEGV, 10)));
  EXPECT_FALSE(IsCertain(Ended(0, 3, 0, 10)));
  EXPECT_FALSE(IsCertain(Ended(0, -1, SIGABRT, 10)));
  EXPECT_FALSE(IsCertain(Ended(0, -1, SIGTERM, 10)));
  Outcome told = Ended(0, -1, SIGKILL, 10);
  told.consequence = true;
  EXPECT_FALSE(IsCertain(told));
}

TEST(FirstCause, TakesAnAbortForAnExit) {
  // Rank 1 found a mistake; rank 0 had no handler for "connection closed by peer".
  const std::vector<Outcome> outcomes = {Ended(0, -1, SIGABRT, 13), Ended(1, 3, 0, 10)};
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 1);
}

TEST(FirstCause, TakesABrokenPipeForAnExit) {
  // Rank 1 exited; rank 0 wrote to it.
  const std::vector<Outcome> outcomes = {Ended(0, -1, SIGPIPE, 13), Ended(1, 3, 0, 10)};
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 1);
}

TEST(FirstCause, IsAConsequenceOnlyIfThereIsNothingElse) {
  std::vector<Outcome> outcomes = {Ended(0, -1, SIGSEGV, 10), Ended(1, 1, 0, 20), Ended(2, 1, 0, 30)};
  outcomes[0].consequence = outcomes[1].consequence = true;
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 2);
  EXPECT_FALSE(TruerCauseMayCome(outcomes));
  outcomes[2].consequence = true;
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 0);
  EXPECT_TRUE(TruerCauseMayCome(outcomes));
  outcomes[0].code = absl::StatusCode::kDeadlineExceeded;
  EXPECT_FALSE(TruerCauseMayCome(outcomes));
}

TEST(OwnFailure, IsOfARankThatFailedByItself) {
  Outcome exited = Ended(2, 1, 0, 10);
  exited.end.message = "rank 2: full; of 7 GB";
  const std::optional<StepFailure> failure = OwnFailure(exited);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 2);
  EXPECT_EQ(failure->step, -1);
  EXPECT_EQ(failure->cause, "exited with code 1: full; of 7 GB");
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
    EXPECT_TRUE(OwnFailure(Ended(2, -1, signal, 10))) << signal;
  EXPECT_EQ(OwnFailure(Ended(2, -1, SIGSEGV, 10))->cause, "was killed by signal 11 (SIGSEGV)");
}

TEST(OwnFailure, IsOfARankThatWasStuck) {
  Outcome stuck = Ended(2, -1, SIGKILL, 10);
  EXPECT_FALSE(OwnFailure(stuck)) << "somebody killed it";
  stuck.did_not_leave = true;
  stuck.end.message = "it had not left generation 4 in time";
  ASSERT_TRUE(OwnFailure(stuck));
  EXPECT_EQ(OwnFailure(stuck)->cause, "was killed by signal 9 (SIGKILL): it had not left generation 4 in time");
}

TEST(OwnFailure, IsNotOfANewProcessOrOneThatSucceeded) {
  Outcome outcome = Ended(2, 1, 0, 10);
  outcome.end.rank = -1;
  EXPECT_FALSE(OwnFailure(outcome));
  EXPECT_FALSE(OwnFailure(Ended(2, 0, 0, 10)));
  EXPECT_FALSE(OwnFailure(Ended(2, -1, SIGTERM, 10)));
  EXPECT_FALSE(OwnFailure(Ended(2, -1, SIGPIPE, 10)));
}

TEST(FailureStatus, HasWhatOtherRanksFailedOfByThemselves) {
  std::vector<Outcome> outcomes = {Ended(0, 1, 0, 1), Ended(1, 1, 0, 2), Ended(2, 1, 0, 3), Ended(3, 1, 0, 4)};
  outcomes[0].end.message = outcomes[2].end.message = "the disk is full";
  outcomes[1].end.message = "rank 1: no GPU";
  outcomes[3].end.message = "rank 0 left";
  outcomes[3].consequence = true;
  EXPECT_EQ(
      Line(outcomes),
      "rank 0 (local rank 0, pid 4700) exited with code 1: the disk is full; the other 3 ranks failed too; rank 1: "
      "no GPU");
}

TEST(FailureStatus, SaysHowARankEndedBeforeTheCause) {
  constexpr int64_t kMs = 1000000;
  std::vector<Outcome> outcomes = {Ended(0, -1, SIGILL, 35 * kMs), Ended(1, -1, SIGABRT, 10 * kMs),
                                   Ended(2, -1, SIGABRT, 36 * kMs)};
  EXPECT_EQ(Line(outcomes),
            "rank 0 (local rank 0, pid 4700) was killed by signal 4 (SIGILL); the other 2 ranks failed too; rank 1 was "
            "killed by signal 6 (SIGABRT) 25ms before");
  outcomes[1] = Ended(1, 3, 0, 10 * kMs);
  EXPECT_EQ(Line(outcomes),
            "rank 0 (local rank 0, pid 4700) was killed by signal 4 (SIGILL); the other 2 ranks failed too; rank 1 "
            "exited with code 3 25ms before");
  outcomes[1].consequence = true;
  EXPECT_EQ(Line(outcomes),
            "rank 0 (local rank 0, pid 4700) was killed by signal 4 (SIGILL); the other 2 ranks failed too");
}

TEST(FirstCause, IsNoRankThatWeEnded) {
  const std::vector<Outcome> outcomes = {EndedByUs(0), Ended(1, 3, 0, 2000)};
  EXPECT_EQ(FirstCause(outcomes)->end.rank, 1);
}

TEST(FailureStatus, SaysWhoAndHow) {
  EXPECT_EQ(Line({Ended(0, 3, 0, 1)}), "rank 0 (local rank 0, pid 4700) exited with code 3");
  EXPECT_EQ(Line({Ended(0, -1, SIGKILL, 1)}), "rank 0 (local rank 0, pid 4700) was killed by signal 9 (SIGKILL)");
  Outcome reported = Ended(0, 3, 0, 1);
  reported.end.message = "no such file";
  EXPECT_EQ(Line({reported}), "rank 0 (local rank 0, pid 4700) exited with code 3: no such file");
}

TEST(FailureStatus, SaysWhatBecameOfTheOthers) {
  const Outcome cause = Ended(0, 3, 0, 1);
  const std::string start = "rank 0 (local rank 0, pid 4700) exited with code 3";
  Outcome killed = EndedByUs(2);
  killed.needed_kill = true;
  EXPECT_EQ(Line({cause, EndedByUs(1)}), start + "; the other rank was ended");
  EXPECT_EQ(Line({cause, Ended(1, 1, 0, 9)}), start + "; the other rank failed too");
  EXPECT_EQ(Line({cause, Ended(1, 0, 0, 9)}), start);
  EXPECT_EQ(Line({cause, EndedByUs(1), EndedByUs(2)}), start + "; the other 2 ranks were ended");
  EXPECT_EQ(Line({cause, killed}), start + "; the other rank was ended by SIGKILL after 2s");
  EXPECT_EQ(Line({cause, EndedByUs(1), killed}),
            start + "; the other 2 ranks were ended, 1 of them by SIGKILL after 2s");
  EXPECT_EQ(Line({cause, EndedByUs(1), EndedByUs(2), Ended(3, 1, 0, 9)}),
            start + "; of the other 3 ranks 1 failed too and 2 were ended");
  killed.outlived_kill = true;
  killed.process_state = 'D';
  EXPECT_EQ(Line({cause, killed}),
            start + "; the other rank was ended by SIGKILL after 2s; SIGKILL did not end rank 2 (pid 4702, state D)");
}

TEST(FailureStatus, CarriesTheFailure) {
  Outcome cause = Ended(1, 3, 0, 1);
  cause.end.message = "two words";
  cause.code = absl::StatusCode::kDataLoss;
  const absl::Status status = FailureStatus(cause, {cause}, absl::Seconds(2));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const std::optional<RankFailure> failure = FirstFailure(status);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->local_rank, 1);
  EXPECT_EQ(failure->pid, 4701);
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_EQ(failure->signal, 0);
  EXPECT_EQ(failure->message, "two words");
}

TEST(FailureStatus, CarriesTheEndOfStderr) {
  const Outcome cause = Ended(1, 3, 0, 1);
  absl::Status status = FailureStatus(cause, {cause}, absl::Seconds(2));
  EXPECT_EQ(FirstFailure(status)->stderr_file, "");
  AddStderr("/logs/a\nb", {"one", "", "three"}, &status);
  EXPECT_EQ(FirstFailure(status)->stderr_file, "/logs/a\\nb");
  EXPECT_EQ(FirstFailure(status)->stderr_lines, (std::vector<std::string>{"one", "", "three"}));
  AddStderr("/logs/a", {}, &status);
  EXPECT_EQ(FirstFailure(status)->stderr_file, "/logs/a");
  EXPECT_EQ(FirstFailure(status)->stderr_lines, std::vector<std::string>());
}

TEST(WithEnding, KeepsWhatTheStatusCarries) {
  const std::vector<Outcome> outcomes = {Ended(0, 3, 0, 1)};
  const absl::Status status = WithEnding(FailureStatus(outcomes[0], outcomes, absl::Seconds(2)), "; after 3 restarts");
  EXPECT_EQ(status.message(), "rank 0 (local rank 0, pid 4700) exited with code 3; after 3 restarts");
  EXPECT_EQ(ExitCode(status), 3);
}

TEST(ExitCode, IsTheRanksOwnOrAShells) {
  const auto code = [](const Outcome& cause) { return ExitCode(FailureStatus(cause, {cause}, absl::Seconds(2))); };
  EXPECT_EQ(ExitCode(absl::OkStatus()), 0);
  EXPECT_EQ(code(Ended(0, 3, 0, 1)), 3);
  EXPECT_EQ(code(Ended(0, -1, SIGKILL, 1)), 137);
  EXPECT_EQ(ExitCode(StoppedStatus(SIGTERM, {}, absl::Seconds(2))), 143);
  EXPECT_EQ(ExitCode(MarkNotExecuted(absl::NotFoundError(""))), 127);
  EXPECT_EQ(ExitCode(MarkNotExecuted(absl::PermissionDeniedError(""))), 126);
  EXPECT_EQ(ExitCode(absl::NotFoundError("no such data set")), 1);
  EXPECT_EQ(code(Ended(0, 127, 0, 1)), 1);
  EXPECT_EQ(ExitCode(absl::InternalError("")), 1);
}

TEST(StoppedStatus, EndsWithWhatTheLowestRankThatSaidSomethingSaid) {
  std::vector<Outcome> outcomes(2);
  outcomes[1].end.rank = 1;
  outcomes[1].end.message = "saved";
  EXPECT_EQ(StoppedStatus(SIGTERM, outcomes, absl::ZeroDuration()).message(),
            "the launcher received signal 15 (SIGTERM); rank 1: saved");
}

}  // namespace
}  // namespace lockstep::launch
