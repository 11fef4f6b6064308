#include "lockstep/launch/status/job_status.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/status/job_status_json.h"
#include "lockstep/launch/status/status_board.h"

namespace lockstep::launch {
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

NodeStart SecondOfTwoNodes() {
  NodeStart start;
  start.number = 2;
  start.restarts = 1;
  start.first_rank = 4;
  return start;
}

// A board with a clock that the test sets.
class Board {
 public:
  explicit Board(int64_t now_ns) : now_ns_(now_ns) {}

  StatusBoard& At(int64_t now_ns) {
    now_ns_ = now_ns;
    return board_;
  }

 private:
  int64_t now_ns_;
  StatusBoard board_{Job(), [this] { return now_ns_; }};
};

TEST(StatusBoard, FollowsTheRanks) {
  Board board(10 * kSecond);
  EXPECT_EQ(board.At(10 * kSecond).Status().phase, JobStatus::Phase::kForming);
  board.At(12 * kSecond).OnGeneration(SecondOfTwoNodes(), 2, 1);
  board.At(13 * kSecond).OnStart(Rank(0, 100));
  board.At(14 * kSecond).OnStart(Rank(1, 101));
  RankFailure killed = Rank(1, 101);
  killed.signal = 9;
  board.At(20 * kSecond).OnEnd(killed);
  const JobStatus status = board.At(30 * kSecond).Status();
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
  Board board(0);
  board.At(0).OnGeneration(SecondOfTwoNodes(), 1, 0);
  board.At(kSecond).OnStart(Rank(0, 100));
  board.At(2 * kSecond).OnWaiting(0, true);
  EXPECT_EQ(board.At(3 * kSecond).Status().ranks[0].state, State::kWaiting);
  board.At(4 * kSecond).OnWaiting(0, false);
  EXPECT_EQ(board.At(4 * kSecond).Status().ranks[0].state, State::kRunning);
  board.At(5 * kSecond).OnEnd(Rank(0, 100));
  board.At(6 * kSecond).OnWaiting(0, true);
  EXPECT_EQ(board.At(6 * kSecond).Status().ranks[0].state, State::kEnded);
}

TEST(StatusBoard, ShowsStepsUntilTheRanksStartAgain) {
  Board board(0);
  board.At(0).OnGeneration(SecondOfTwoNodes(), 2, 0);
  board.At(0).OnStart(Rank(0, 100));
  for (int i = 0; i <= 4; ++i) board.At(i * kSecond).OnStep(0, 2 * i, i * kSecond);
  board.At(kSecond).OnStep(7, 1, kSecond);  // there is no such rank
  const JobStatus status = board.At(4 * kSecond).Status();
  EXPECT_EQ(status.ranks[0].step, 8);
  EXPECT_NEAR(*status.ranks[0].steps_per_second, 2, 1e-9);
  EXPECT_FALSE(status.ranks[1].step);
  board.At(5 * kSecond).OnGeneration(SecondOfTwoNodes(), 2, 0);
  EXPECT_FALSE(board.At(5 * kSecond).Status().ranks[0].step);
}

TEST(StatusBoard, ShowsWhyRanksWaitWhileTheySaySoAndMakeNoStep) {
  Board board(0);
  board.At(0).OnGeneration(SecondOfTwoNodes(), 2, 0);
  board.At(0).OnStart(Rank(0, 100));
  board.At(kSecond).OnStep(0, 1, kSecond);
  EXPECT_EQ(board.At(2 * kSecond).Status().stall, "");
  board.At(40 * kSecond).OnStall("rank 1 sleeps");
  EXPECT_EQ(board.At(55 * kSecond).Status().stall, "rank 1 sleeps");
  EXPECT_EQ(board.At(55 * kSecond).Status().ranks[0].since_step, absl::Seconds(54));
  EXPECT_EQ(board.At(56 * kSecond).Status().stall, "");
  board.At(60 * kSecond).OnStall("rank 1 sleeps");
  board.At(61 * kSecond).OnStep(0, 2, 61 * kSecond);
  EXPECT_EQ(board.At(61 * kSecond).Status().stall, "");
}

TEST(StatusBoard, ASpareHasNoRanks) {
  Board board(0);
  board.At(0).OnGeneration(SecondOfTwoNodes(), 2, 0);
  board.At(kSecond).OnSpare(5, 3);
  board.At(2 * kSecond).OnSpare(5, 3);
  const JobStatus status = board.At(3 * kSecond).Status();
  EXPECT_EQ(status.phase, JobStatus::Phase::kSpare);
  EXPECT_EQ(status.in_phase, absl::Seconds(2));
  EXPECT_EQ(status.generation, 5);
  EXPECT_EQ(status.restarts, 3);
  EXPECT_TRUE(status.ranks.empty());
}

TEST(JobStatus, IsWrittenAsProgramsReadIt) {
  JobStatus job = Job();
  job.running = absl::Milliseconds(61234);
  job.hosts.resize(1);
  job.hosts[0].host = "a";
  EXPECT_EQ(EncodeJobStatus(job),
            R"({"job":"bert","host":"a","pid":4711,"program":"./train --lr=1","started":"2023-11-14T22:13:20+00:00",)"
            R"("seconds":61.234,"grace_seconds":2.000,"meets_others":false,"min_nodes":1,"max_nodes":1,)"
            R"("phase":"forming","seconds_in_phase":0.000,"generation":0,"restarts":0,"max_restarts":3,)"
            R"("hosts":[{"host":"a","address":"","first_rank":0,"ranks":1,"state":"member"}],"ranks":[]})");
  job.hosts.clear();
  job.trouble = "no\tanswer";
  job.stall = "rank 1 sleeps";
  job.ready = 0;
  job.ranks.resize(3);
  job.ranks[0].state = State::kRunning;
  job.ranks[0].step = 12;
  job.ranks[0].since_step = absl::Milliseconds(1500);
  job.ranks[0].steps_per_second = 1234.5678;
  job.ranks[1].state = job.ranks[2].state = State::kEnded;
  job.ranks[2].signal = 9;
  const std::string text = EncodeJobStatus(job);
  EXPECT_EQ(text.substr(text.find("\"hosts\"")),
            R"("hosts":[],"ranks":[{"rank":0,"local_rank":0,"pid":0,"state":"running","seconds_in_state":0.000,)"
            R"("step":12,"seconds_since_step":1.500,"steps_per_second":1235},)"
            R"({"rank":0,"local_rank":0,"pid":0,"state":"ended","seconds_in_state":0.000,"exit_code":-1},)"
            R"({"rank":0,"local_rank":0,"pid":0,"state":"ended","seconds_in_state":0.000,"signal":9}],)"
            R"("trouble":"no\\tanswer","stall":"rank 1 sleeps","ready_hosts":0})");
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
}  // namespace lockstep::launch
