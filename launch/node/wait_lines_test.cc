#include "lockstep/launch/node/wait_lines.h"

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Wait = WaitLines::Wait;

constexpr int64_t kStart = 7'000'000'000'000;

int64_t At(double seconds) { return kStart + absl::ToInt64Nanoseconds(absl::Seconds(seconds)); }

class WaitLinesTest : public ::testing::Test {
 protected:
  void OnJob(Wait wait, int min_nodes, int max_nodes, double at = 0, int members = 2) {
    lines_.OnJob(wait, {0, min_nodes, max_nodes}, members, At(at));
  }

  // Returns the lines from second `from` to second `to`, if somebody looks every half second: "2: a line".
  std::vector<std::string> Said(double from, double to) {
    std::vector<std::string> said;
    for (double at = from; at <= to; at += 0.5) {
      std::string line = lines_.Take(reach_, ready_, At(at));
      if (!line.empty()) said.push_back(absl::StrCat(at, ": ", line));
    }
    return said;
  }

  void StartSilence(double at) {
    Rendezvous::Silence silence;
    silence.who = "etcd at e:2379";
    silence.what = "no launcher has answered at h:29400";
    silence.why = "Connection refused";
    silence.since_ns = At(at);
    silence.until_ns = At(at + 60);
    reach_.silence = std::move(silence);
  }

  Rendezvous::Reach reach_;
  std::optional<int> ready_;
  WaitLines lines_{"h:29400", absl::Minutes(10), kStart};
};

TEST_F(WaitLinesTest, AJobThatFormsAtOnceNeedsNoLine) {
  OnJob(Wait::kForming, 2, 2);
  EXPECT_THAT(Said(0, 1.5), IsEmpty());
  EXPECT_TRUE(lines_.waits());
  OnJob(Wait::kNone, 2, 2, 1.5);
  EXPECT_FALSE(lines_.waits());
  EXPECT_THAT(Said(2, 600), IsEmpty());
}

TEST_F(WaitLinesTest, LinesComeAfterTwoSecondsThirtyAndThenEachMinute) {
  OnJob(Wait::kForming, 2, 2);
  EXPECT_THAT(Said(0, 130), ElementsAre("2: waiting at h:29400 until 2 nodes are there",
                                        "30: waiting for 30s (of 10m) at h:29400 until 2 nodes are there",
                                        "60: waiting for 1m (of 10m) at h:29400 until 2 nodes are there",
                                        "120: waiting for 2m (of 10m) at h:29400 until 2 nodes are there"));
}

TEST_F(WaitLinesTest, ALongPauseOfTheProcessGivesOneLine) {
  OnJob(Wait::kForming, 2, 2);
  EXPECT_THAT(Said(250, 299), ElementsAre("250: waiting for 4m10s (of 10m) at h:29400 until 2 nodes are there"));
}

TEST_F(WaitLinesTest, TheLeaderSaysHowManyAreThere) {
  OnJob(Wait::kForming, 2, 4);
  ready_ = 1;
  EXPECT_THAT(Said(0, 10), ElementsAre("2: 1 of 2 to 4 nodes is there, at h:29400; waiting for more"));
  ready_ = 3;  // the line about that comes 10 s after the last one, and no second one
  EXPECT_THAT(Said(10, 29), ElementsAre("12: 3 of 2 to 4 nodes are there, at h:29400; waiting for more"));
  ready_ = 4;
  EXPECT_THAT(Said(29, 100), IsEmpty());
}

TEST_F(WaitLinesTest, AJobThatFormsAgainIsANewWait) {
  OnJob(Wait::kForming, 2, 2);
  EXPECT_EQ(Said(0, 40).size(), 2);
  OnJob(Wait::kNone, 2, 2, 40);
  OnJob(Wait::kForming, 2, 3, 50);
  OnJob(Wait::kForming, 2, 3, 51);  // another decision while it forms
  ready_ = 2;                       // that is no change since the last line: it was about the wait before
  EXPECT_THAT(Said(50, 79), ElementsAre("52: 2 of 2 to 3 nodes are there, at h:29400; waiting for more"));
}

TEST_F(WaitLinesTest, AfterTenSecondsOfSilenceTheLinesSayWhy) {
  OnJob(Wait::kForming, 2, 2);
  StartSilence(0);
  EXPECT_THAT(Said(0, 59), ElementsAre("2: waiting at h:29400 until 2 nodes are there",
                                       "10: no launcher has answered at h:29400 for 10s (of 1m): Connection refused",
                                       "30: no launcher has answered at h:29400 for 30s (of 1m): Connection refused"));
}

TEST_F(WaitLinesTest, AServerThatHasAnsweredBeforeIsNamed) {
  OnJob(Wait::kForming, 2, 2);
  EXPECT_EQ(Said(0, 20).size(), 1);
  reach_.met = true;
  StartSilence(20);
  reach_.silence->why.clear();
  EXPECT_THAT(Said(20, 45), ElementsAre("30: etcd at e:2379 has not answered for 10s (of 1m)"));
}

TEST_F(WaitLinesTest, ASpareSaysOnceThatItIsOne) {
  OnJob(Wait::kSpare, 1, 2);
  EXPECT_TRUE(lines_.waits());
  EXPECT_THAT(Said(0, 300), ElementsAre("2: the job has all its 2 nodes; this one waits as a spare"));
  EXPECT_FALSE(lines_.waits());
  OnJob(Wait::kNone, 1, 2, 300);
  OnJob(Wait::kSpare, 1, 2, 310);
  EXPECT_THAT(Said(310, 400), IsEmpty());
}

TEST_F(WaitLinesTest, ANodeThatTheJobDoesNotTakeAsksForTheNumberOfNodes) {
  OnJob(Wait::kSpare, 2, 2, 0, 1);
  EXPECT_THAT(Said(0, 300), ElementsAre("5: the job runs on 1 node without this one, which waits as a spare; do all "
                                        "launchers have --nnodes=2?"));
  OnJob(Wait::kSpare, 2, 3, 300, 1);
  EXPECT_THAT(Said(300, 400), IsEmpty());
}

TEST_F(WaitLinesTest, ANodeThatIsOutOfReachSaysEveryNowAndThenThatNobodyAnswers) {
  OnJob(Wait::kNone, 2, 2);
  reach_.met = true;
  StartSilence(0);
  EXPECT_THAT(Said(0, 15), IsEmpty()) << "the ranks run";
  reach_.away = true;
  EXPECT_NE(lines_.OnReach(reach_, true, At(15)), "");
  EXPECT_TRUE(lines_.waits());
  EXPECT_THAT(Said(15, 59), ElementsAre("15: etcd at e:2379 has not answered for 15s (of 1m): Connection refused",
                                        "30: etcd at e:2379 has not answered for 30s (of 1m): Connection refused"));
  reach_ = {};
  EXPECT_NE(lines_.OnReach(reach_, false, At(59)), "");
  EXPECT_FALSE(lines_.waits());
}

TEST_F(WaitLinesTest, ASpareForAMomentSaysNothing) {
  OnJob(Wait::kSpare, 1, 2);
  EXPECT_THAT(Said(0, 1.5), IsEmpty());
  OnJob(Wait::kNone, 1, 2, 1.5);
  OnJob(Wait::kSpare, 1, 2, 2);
  EXPECT_THAT(Said(2, 3.5), IsEmpty());
}

TEST_F(WaitLinesTest, OneLineWhenNobodyAnswersAndOneWhenSomebodyDoesAgain) {
  StartSilence(0);
  EXPECT_EQ(lines_.OnReach(reach_, true, At(3)), "") << "not out of reach yet";
  reach_.away = true;
  EXPECT_EQ(lines_.OnReach(reach_, true, At(3)),
            "no launcher has answered at h:29400 (Connection refused); this node ends its ranks and tries again for "
            "57s");
  EXPECT_EQ(lines_.OnReach(reach_, false, At(4)), "");
  reach_ = {};
  EXPECT_EQ(lines_.OnReach(reach_, false, At(5)), "etcd at e:2379 answers again");
  EXPECT_EQ(lines_.OnReach(reach_, false, At(6)), "");
  StartSilence(10);
  reach_.away = true;
  EXPECT_EQ(lines_.OnReach(reach_, false, At(15.6)),
            "no launcher has answered at h:29400 (Connection refused); this node tries again for 54s");
}

}  // namespace
}  // namespace lockstep::launch
