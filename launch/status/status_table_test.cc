#include "lockstep/launch/status/status_table.h"

#include <string>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using State = RankStatus::State;

RankStatus Running(int rank, int64_t step, double rate) {
  RankStatus status;
  status.local_rank = status.rank = rank;
  status.pid = 5000 + rank;
  status.state = State::kRunning;
  status.in_state = absl::Seconds(125);
  status.step = step;
  status.steps_per_second = rate;
  return status;
}

JobStatus Job() {
  JobStatus job;
  job.job_id = "bert";
  job.host = "a";
  job.pid = 4711;
  job.program = "./train --lr=1";
  job.running = absl::Hours(26);
  job.phase = JobStatus::Phase::kRunning;
  job.in_phase = absl::Seconds(125);
  job.generation = 2;
  job.restarts = 1;
  job.max_restarts = 3;
  return job;
}

JobStatus JobOfFour() {
  JobStatus job = Job();
  job.min_nodes = 1;
  job.max_nodes = 3;
  job.hosts.resize(2);
  job.hosts[0].host = job.hosts[0].address = "a";
  job.hosts[0].ranks = 4;
  job.hosts[1].host = "b";
  job.hosts[1].address = "10.0.0.2";
  job.hosts[1].first_rank = 4;
  job.hosts[1].state = HostStatus::State::kLeaving;
  job.ranks = {Running(0, 1200, 10.25), Running(1, 1198, 10.5), RankStatus(), RankStatus()};
  job.ranks[2].local_rank = job.ranks[2].rank = 2;
  job.ranks[3] = Running(3, 700, 1);
  job.ranks[3].state = State::kEnded;
  job.ranks[3].signal = 9;
  job.ranks[3].steps_per_second.reset();
  return job;
}

TEST(StatusTable, HasALineForEachRank) {
  EXPECT_THAT(StatusTable(JobOfFour(), {}, false),
              ElementsAre("job bert: running for 2m05s, generation 2, 1 of 3 restarts",
                          "launcher 4711 on host a for 1d02h: ./train --lr=1",
                          "2 of 1 to 3 hosts: a ranks 0-3, b (10.0.0.2) rank 4 leaving",  //
                          "",                                                             //
                          " RANK  LOCAL      PID  STATE          FOR       STEP  STEPS/S",
                          "    0      0     5000  running      2m05s       1200    10.25",
                          "    1      1     5001  running      2m05s       1198    10.50  slowest",
                          "    2      2        -  starting        0s          -        -",
                          "    3      3     5003  ended KILL   2m05s        700        -"));
}

TEST(StatusTable, SaysThatTrainingStandsStillAndBlamesNoRank) {
  JobStatus job = JobOfFour();
  for (const int rank : {0, 1}) {
    job.ranks[rank].since_step = absl::Seconds(45 - rank);
    job.ranks[rank].steps_per_second = 0;
  }
  EXPECT_EQ(StatusTable(job, {}, false)[2], "last step 44s ago");
  job.stall = "all_reduce #7 has lasted 40s: rank 0 (host a, pid 5000) has not begun it";
  EXPECT_EQ(StatusTable(job, {}, false)[2],
            "last step 44s ago: all_reduce #7 has lasted 40s: rank 0 (host a, pid 5000) has not begun it");
  for (const std::string& line : StatusTable(job, {}, false)) EXPECT_THAT(line, Not(HasSubstr("slowest")));
  job.ranks[1].since_step = absl::Seconds(9);
  job.stall.clear();
  EXPECT_EQ(StatusTable(job, {}, false)[2], StatusTable(JobOfFour(), {}, false)[2]);
}

TEST(StatusTable, ColoursTheHeadTheSlowestAndWhatEndedBadly) {
  const std::vector<std::string> plain = StatusTable(JobOfFour(), {}, false);
  std::vector<std::string> expected = plain;
  expected[4] = "\x1b[1m" + plain[4] + "\x1b[0m";
  expected[6] = "\x1b[33m" + plain[6] + "\x1b[0m";
  expected[8] = "\x1b[31m" + plain[8] + "\x1b[0m";
  EXPECT_EQ(StatusTable(JobOfFour(), {}, true), expected);
}

TEST(StatusTable, IsCutAtTheWindow) {
  TableSize size;
  size.width = 20;
  size.height = 7;
  EXPECT_THAT(StatusTable(JobOfFour(), size, false),
              ElementsAre("job bert: running fo", "launcher 4711 on hos", "2 of 1 to 3 hosts: a", "",
                          " RANK  LOCAL      PI", "    0      0     500", "and 3 more ranks"));
  size.height = 9;
  EXPECT_EQ(StatusTable(JobOfFour(), size, false).size(), 9) << "all fit";
  for (size.height = 1; size.height < 9; ++size.height) {
    EXPECT_LE(StatusTable(JobOfFour(), size, true).size(), size.height);
  }
}

TEST(StatusTable, CountsRanksThatAreNotNeighbours) {
  JobStatus job = JobOfFour();
  job.hosts[0].first_rank = -1;
  EXPECT_EQ(StatusTable(job, {}, false)[2], "2 of 1 to 3 hosts: a 4 ranks, b (10.0.0.2) rank 4 leaving");
}

TEST(StatusTable, SaysNoLimitOfRestartsIfThereIsNone) {
  JobStatus job = JobOfFour();
  job.max_restarts = job.restarts = 0;
  EXPECT_EQ(StatusTable(job, {}, false)[0], "job bert: running for 2m05s, generation 2, 0 restarts");
}

TEST(StatusTable, SaysHowManyHostsAreThereWhileTheJobForms) {
  JobStatus job = Job();
  job.meets_others = true;
  job.min_nodes = job.max_nodes = 4;
  EXPECT_EQ(StatusTable(job, {}, false)[2], "0 of 4 hosts");
}

TEST(StatusTable, CutsBetweenCharactersAndNotBytes) {
  JobStatus job = Job();
  job.job_id = "\u00e9\u00e9\u00e9\u00e9";
  TableSize size;
  size.width = 6;
  EXPECT_EQ(StatusTable(job, size, false)[0], "job \u00e9\u00e9");
}

TEST(StatusTable, EscapesHostileNames) {
  JobStatus job = Job();
  job.job_id = "\x1b[2J";
  job.program = "a\nb";
  job.hosts.resize(2);
  job.hosts[0].host = "\x1b]0;x\x07";
  const std::string text = absl::StrJoin(StatusTable(job, {}, false), "\n");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("job \\x1b[2J: "));
  EXPECT_THAT(text, HasSubstr("a\\nb"));
  EXPECT_THAT(text, HasSubstr("\\x1b]0;x\\x07 rank 0"));
}

// The ranks that the table marks.
std::string Marked(const std::vector<RankStatus>& ranks) {
  JobStatus job = Job();
  job.ranks = ranks;
  std::string marked;
  const std::vector<std::string> lines = StatusTable(job, {}, false);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (lines[lines.size() - ranks.size() + i].find("slowest") != std::string::npos) marked += std::to_string(i);
  }
  return marked;
}

TEST(StatusTable, MarksTheSlowestRankIfOneIsMuchSlower) {
  EXPECT_EQ(Marked({Running(0, 10, 5), Running(1, 9, 9), Running(2, 10, 9)}), "1") << "it is a step behind";
  EXPECT_EQ(Marked({Running(0, 10, 5), Running(1, 10, 9), Running(2, 10, 9)}), "0") << "it is much slower";
  EXPECT_EQ(Marked({Running(0, 10, 8.5), Running(1, 10, 9)}), "") << "they are nearly as fast as each other";
  EXPECT_EQ(Marked({Running(0, 10, 5)}), "");
  RankStatus ended = Running(1, 3, 1);
  ended.state = State::kEnded;
  EXPECT_EQ(Marked({Running(0, 10, 9), ended}), "");
}

TEST(StatusTable, TimesAreShort) {
  EXPECT_EQ(ShortTime(absl::Milliseconds(59999)), "59s");
  EXPECT_EQ(ShortTime(absl::Seconds(60)), "1m00s");
  EXPECT_EQ(ShortTime(absl::Minutes(60)), "1h00m");
  EXPECT_EQ(ShortTime(absl::Hours(24)), "1d00h");
  EXPECT_EQ(ShortTime(absl::Seconds(-1)), "0s");
}

TEST(JobsTable, HasALineForEachJobAndNamesTheOneThatDoesNotAnswer) {
  RunningJob runs, hangs;
  runs.pid = 4711;
  runs.status = JobOfFour();
  hangs.pid = 4712;
  hangs.status = absl::DeadlineExceededError("it does not answer");
  EXPECT_THAT(JobsTable({runs, hangs}, {}, false),
              ElementsAre("     PID  JOB          STATE         FOR     RANKS  PROGRAM",
                          "    4711  bert         running     1d02h    2 of 4  ./train --lr=1",
                          "    4712  it does not answer"));
}

TEST(JobClient, APidOrANameMeansAJob) {
  RunningJob a, b, c;
  a.pid = 1;
  a.status = Job();
  b.pid = 2;
  b.status = Job();
  c.pid = 3;
  EXPECT_EQ(JobsNamed("", {a, b, c}).size(), 3);
  EXPECT_EQ(JobsNamed("bert", {a, b, c}).size(), 2);
  ASSERT_EQ(JobsNamed("2", {a, b, c}).size(), 1);
  EXPECT_EQ(JobsNamed("2", {a, b, c})[0].pid, 2);
  EXPECT_EQ(JobsNamed("3", {a, b, c}).size(), 1) << "it may be named although it does not answer";
  EXPECT_TRUE(JobsNamed("4", {a, b, c}).empty());
}

}  // namespace
}  // namespace lockstep::launch
