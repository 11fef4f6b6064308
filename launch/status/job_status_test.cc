#include "lockstep/tools/launch/status/internal/job_status.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/launch/status/internal/job_status_reader.h"
#include "lockstep/tools/launch/status/internal/status_board.h"

namespace lockstep::launch::internal {
namespace {

using ::testing::HasSubstr;
using State = RankStatus::State;

constexpr int64_t kSecond = 1'000'000'000;

RankFailure Rank(int local_rank, pid_t pid) {
  RankFailure rank;
  rank.local_rank = local_rank;
  rank.pid = pid;
  return rank;
}

JobStatus Job() {
  JobStatus job;
  job.job_id = "bert";
  job.host = "a";
  job.pid = 4711;
  job.program = "./train --lr=1";
  job.started = absl::FromUnixSeconds(1'700'000'000);
  job.grace = absl::Seconds(2);
  job.max_restarts = 3;
  return job;
}

Generation SecondOfTwoNodes() {
  Generation generation;
  generation.number = 2;
  generation.restarts = 1;
  generation.first_rank = 4;
  return generation;
}

TEST(StatusBoard, FollowsTheRanks) {
  StatusBoard board(Job(), 10 * kSecond);
  EXPECT_EQ(board.Status(10 * kSecond).phase, JobStatus::Phase::kForming);
  board.NoteGeneration(SecondOfTwoNodes(), 2, 1, 12 * kSecond);
  board.NoteStart(Rank(0, 100), 13 * kSecond);
  board.NoteStart(Rank(1, 101), 14 * kSecond);
  RankFailure killed = Rank(1, 101);
  killed.signal = 9;
  board.NoteEnd(killed, 20 * kSecond);
  const JobStatus status = board.Status(30 * kSecond);
  EXPECT_EQ(status.phase, JobStatus::Phase::kRunning);
  EXPECT_EQ(status.running, absl::Seconds(20));
  EXPECT_EQ(status.in_phase, absl::Seconds(18));
  EXPECT_EQ(status.generation, 2);
  EXPECT_EQ(status.restarts, 1);
  ASSERT_EQ(status.ranks.size(), 3);
  EXPECT_EQ(status.ranks[0].rank, 4);
  EXPECT_EQ(status.ranks[0].pid, 100);
  EXPECT_EQ(status.ranks[0].state, State::kRunning);
  EXPECT_EQ(status.ranks[0].in_state, absl::Seconds(17));
  EXPECT_EQ(status.ranks[1].state, State::kEnded);
  EXPECT_EQ(status.ranks[1].signal, 9);
  EXPECT_EQ(status.ranks[1].in_state, absl::Seconds(10));
  EXPECT_EQ(status.ranks[2].rank, -1) << "a spare";
  EXPECT_EQ(status.ranks[2].state, State::kStarting);
  EXPECT_EQ(status.ranks[2].pid, 0);
}

TEST(StatusBoard, ARankWaitsAndGoesOn) {
  StatusBoard board(Job(), 0);
  board.NoteGeneration(SecondOfTwoNodes(), 1, 0, 0);
  board.NoteStart(Rank(0, 100), kSecond);
  board.NoteWaiting(0, true, 2 * kSecond);
  EXPECT_EQ(board.Status(3 * kSecond).ranks[0].state, State::kWaiting);
  board.NoteWaiting(0, false, 4 * kSecond);
  EXPECT_EQ(board.Status(4 * kSecond).ranks[0].state, State::kRunning);
  board.NoteEnd(Rank(0, 100), 5 * kSecond);
  board.NoteWaiting(0, true, 6 * kSecond);
  EXPECT_EQ(board.Status(6 * kSecond).ranks[0].state, State::kEnded);
}

TEST(StatusBoard, ShowsStepsUntilTheRanksStartAgain) {
  StatusBoard board(Job(), 0);
  board.NoteGeneration(SecondOfTwoNodes(), 2, 0, 0);
  board.NoteStart(Rank(0, 100), 0);
  for (int i = 0; i <= 4; ++i) board.NoteStep(0, 2 * i, i * kSecond);
  board.NoteStep(7, 1, kSecond);  // there is no such rank
  const JobStatus status = board.Status(4 * kSecond);
  EXPECT_EQ(status.ranks[0].step, 8);
  EXPECT_NEAR(*status.ranks[0].steps_per_second, 2, 1e-9);
  EXPECT_FALSE(status.ranks[1].step);
  board.NoteGeneration(SecondOfTwoNodes(), 2, 0, 5 * kSecond);
  EXPECT_FALSE(board.Status(5 * kSecond).ranks[0].step);
}

TEST(StatusBoard, ShowsWhyRanksWaitWhileTheySaySoAndMakeNoStep) {
  StatusBoard board(Job(), 0);
  board.NoteGeneration(SecondOfTwoNodes(), 2, 0, 0);
  board.NoteStart(Rank(0, 100), 0);
  board.NoteStep(0, 1, kSecond);
  EXPECT_EQ(board.Status(2 * kSecond).stall, "");
  board.NoteStall("rank 1 sleeps", 40 * kSecond);
  EXPECT_EQ(board.Status(55 * kSecond).stall, "rank 1 sleeps");
  EXPECT_EQ(board.Status(55 * kSecond).ranks[0].since_step, absl::Seconds(54));
  EXPECT_EQ(board.Status(56 * kSecond).stall, "");
  board.NoteStall("rank 1 sleeps", 60 * kSecond);
  board.NoteStep(0, 2, 61 * kSecond);
  EXPECT_EQ(board.Status(61 * kSecond).stall, "");
}

TEST(StatusBoard, ASpareHasNoRanks) {
  StatusBoard board(Job(), 0);
  board.NoteGeneration(SecondOfTwoNodes(), 2, 0, 0);
  board.NoteSpare(5, 3, kSecond);
  board.NoteSpare(5, 3, 2 * kSecond);
  const JobStatus status = board.Status(3 * kSecond);
  EXPECT_EQ(status.phase, JobStatus::Phase::kSpare);
  EXPECT_EQ(status.in_phase, absl::Seconds(2));
  EXPECT_EQ(status.generation, 5);
  EXPECT_EQ(status.restarts, 3);
  EXPECT_TRUE(status.ranks.empty());
}

TEST(JobStatus, SurvivesItsText) {
  JobStatus job = Job();
  job.running = absl::Seconds(90.5);
  job.meets_others = true;
  job.min_nodes = 2;
  job.max_nodes = 5;
  job.phase = JobStatus::Phase::kEnding;
  job.in_phase = absl::Seconds(1.25);
  job.stall = "all_reduce #7 has lasted 30s";
  job.generation = 7;
  job.restarts = 2;
  job.hosts.resize(2);
  job.hosts[1].host = "b";
  job.hosts[1].address = "10.0.0.2";
  job.hosts[1].first_rank = 4;
  job.hosts[1].ranks = 3;
  job.hosts[1].state = HostStatus::State::kLeaving;
  job.ranks.resize(2);
  job.ranks[0].step = 123456789012;
  job.ranks[0].steps_per_second = 2.5;
  job.ranks[0].state = State::kRunning;
  job.ranks[1].state = State::kEnded;
  job.ranks[1].exit_code = 3;
  job.ranks[1].in_state = absl::Seconds(4);
  const absl::StatusOr<JobStatus> again = DecodeJobStatus(EncodeJobStatus(job));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(EncodeJobStatus(*again), EncodeJobStatus(job));
  EXPECT_EQ(again->started, job.started);
  EXPECT_EQ(again->max_nodes, 5);
  EXPECT_EQ(again->phase, JobStatus::Phase::kEnding);
  EXPECT_EQ(again->hosts[1].address, "10.0.0.2");
  EXPECT_EQ(again->hosts[1].state, HostStatus::State::kLeaving);
  EXPECT_EQ(again->ranks[0].step, 123456789012);
  EXPECT_EQ(again->ranks[1].exit_code, 3);
  EXPECT_FALSE(again->ranks[1].step);
}

TEST(JobStatus, IsOneSafeLineWhateverTheNames) {
  JobStatus job = Job();
  job.job_id = "a\"b\\c\n\x1b[2J";
  job.host = "\xff\xfe";
  job.program = std::string("\0x\r", 3);
  const std::string text = EncodeJobStatus(job);
  for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << text;
  const absl::StatusOr<JobStatus> again = DecodeJobStatus(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job_id, "a\"b\\c\\n\\x1b[2J");
}

TEST(JobStatus, OtherTextsAreErrors) {
  for (const char* text : {"", "{}", "[]", "nonsense", "{\"job\":3}", "\xff"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeJobStatus(text).status())) << text;
  }
  std::string text = EncodeJobStatus(Job());
  ASSERT_THAT(text, HasSubstr("forming"));
  text.replace(text.find("forming"), 7, "dancing");
  EXPECT_THAT(DecodeJobStatus(text).status().message(), HasSubstr("unknown phase dancing"));
}

TEST(JobStatus, RepliesAreTextsOrErrors) {
  EXPECT_EQ(*DecodeReply("{\"ok\":\"yes\"}"), "yes");
  EXPECT_EQ(DecodeReply("{\"error\":\"no\"}").status(), absl::FailedPreconditionError("no"));
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeReply("{}").status()));
}

}  // namespace
}  // namespace lockstep::launch::internal
