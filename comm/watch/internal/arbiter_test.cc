#include "lockstep/comm/watch/internal/arbiter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::comm::internal {
namespace {

using std::chrono::milliseconds;

// An arbiter of ranks on hosts "h0", "h1", ..., with a clock that the test turns.
class Group {
 public:
  explicit Group(int size, int joined = -1, int hub = 0)
      : arbiter_(
            Identities(size), hub, now_ + std::chrono::seconds(10),
            [this](int rank, const Frame& frame) { sent_.emplace_back(rank, frame); },
            [this](const RankIdentity& identity) {
              ++looks_;
              return fates_[identity.rank];
            }) {
    for (int rank = 0; rank < (joined < 0 ? size : joined); ++rank) EXPECT_TRUE(arbiter_.Join(rank));
    if (joined < 0) sent_.clear();
  }

  static std::vector<RankIdentity> Identities(int size) {
    std::vector<RankIdentity> ranks(size);
    for (int rank = 0; rank < size; ++rank) {
      ranks[rank].rank = rank;
      ranks[rank].host = absl::StrCat("h", rank);
      ranks[rank].pid = 100 + rank;
      // Ranks 0 to 3 see each other's processes; 4 and above are on another machine.
      ranks[rank].boot_id = rank < 4 ? "one" : "another";
    }
    return ranks;
  }

  void Say(int rank, Frame::Type type, int64_t sequence = -1, const std::string& text = "", int64_t value = 0) {
    arbiter_.Receive(rank, {type, rank, 0, sequence, value, text}, now_);
  }
  void Trouble(int rank, absl::StatusCode code, const std::string& text) {
    arbiter_.Receive(rank, {Frame::Type::kTrouble, rank, static_cast<int32_t>(code), 7, 0, text}, now_);
  }
  void SayFate(int rank, int of, const std::string& fate) {
    arbiter_.Receive(rank, {Frame::Type::kFate, of, 0, -1, 0, fate}, now_);
  }
  void After(milliseconds time) {
    now_ += time;
    arbiter_.Tick(now_);
  }
  void Lose(int rank) { arbiter_.Lose(rank, "its connection closed", now_); }
  void Know(int rank, const std::string& fate) { fates_[rank] = fate; }

  // Returns the frames that were sent to `rank` since the last call, as "type:text".
  std::string SentTo(int rank) {
    std::string text;
    for (const auto& sent : sent_) {
      if (sent.first != rank) continue;
      absl::StrAppend(&text, text.empty() ? "" : "\n", static_cast<int>(sent.second.type), ":", sent.second.text);
    }
    sent_.clear();
    return text;
  }
  std::string CauseAt(int rank, absl::StatusCode code) {
    for (const auto& sent : sent_) {
      if (sent.first != rank || sent.second.type != Frame::Type::kCause) continue;
      EXPECT_EQ(static_cast<absl::StatusCode>(sent.second.code), code);
      return sent.second.text;
    }
    return "";
  }
  bool Join(int rank) { return arbiter_.Join(rank); }
  size_t frames_sent() const { return sent_.size(); }
  int looks() const { return looks_; }  // at a rank's process

 private:
  Clock::time_point now_ = Clock::now();
  std::map<int, std::string> fates_;
  int looks_ = 0;
  std::vector<std::pair<int, Frame>> sent_;
  Arbiter arbiter_;
};

std::string Sent(Frame::Type type, const std::string& text = "") {
  return absl::StrCat(static_cast<int>(type), ":", text);
}

TEST(Arbiter, WelcomesAllWhenTheLastHasJoined) {
  Group group(3, 2);
  EXPECT_EQ(group.SentTo(0), "");
  EXPECT_FALSE(group.Join(1));
  EXPECT_FALSE(group.Join(3));
  EXPECT_TRUE(group.Join(2));
  EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kWelcome));
}

TEST(Arbiter, NamesThoseThatDidNotJoinByTheDeadline) {
  Group group(4, 2);
  group.After(milliseconds(9000));
  EXPECT_EQ(group.CauseAt(1, absl::StatusCode::kDeadlineExceeded), "");
  group.After(milliseconds(1000));
  EXPECT_EQ(group.CauseAt(1, absl::StatusCode::kDeadlineExceeded),
            "these ranks did not connect: rank 2 (host h2, pid 102), rank 3 (host h3, pid 103)");
  group.SentTo(0);
  EXPECT_TRUE(group.Join(2));
  EXPECT_NE(group.CauseAt(2, absl::StatusCode::kDeadlineExceeded), "");
}

TEST(Arbiter, SeesThatOneDiedBeforeItJoined) {
  Group group(3, 2);
  group.Know(2, "exited with code 1");
  group.After(milliseconds(0));
  EXPECT_EQ(group.CauseAt(1, absl::StatusCode::kUnavailable), "rank 2 (host h2, pid 102) exited with code 1");
}

TEST(Arbiter, LooksAtAProcessOfAThousandThatAreMissingLessThanThreeThousandTimesASecond) {
  Group group(1001, 1);
  for (int i = 0; i < 10; ++i) group.After(milliseconds(100));
  EXPECT_LT(group.looks(), 3001);
  group.Know(1000, "exited with code 1");
  group.After(milliseconds(400));
  EXPECT_EQ(group.CauseAt(0, absl::StatusCode::kUnavailable), "rank 1000 (host h1000, pid 1100) exited with code 1");
}

TEST(Arbiter, TellsALossWithTheFateOnceItShows) {
  Group group(3);
  group.Lose(1);
  group.After(milliseconds(20));
  EXPECT_EQ(group.SentTo(2), "");
  group.Know(1, "died: signal 9 (Killed)");
  group.After(milliseconds(5));
  EXPECT_EQ(group.CauseAt(2, absl::StatusCode::kUnavailable), "rank 1 (host h1, pid 101) died: signal 9 (Killed)");
  EXPECT_EQ(group.SentTo(1), "");
}

TEST(Arbiter, TellsALossWithoutAFateAfterAWhile) {
  Group group(3);
  group.Lose(1);
  group.After(kFatePatience);
  EXPECT_EQ(group.CauseAt(2, absl::StatusCode::kUnavailable),
            "rank 1 (host h1, pid 101) was lost: its connection closed");
}

TEST(Arbiter, AsksANeighbourOfARankThatItCannotSee) {
  Group group(6);
  group.Lose(4);
  group.After(milliseconds(1));
  EXPECT_EQ(group.SentTo(5), Sent(Frame::Type::kAskFate));
  group.SayFate(5, /*of=*/4, "");
  group.SayFate(5, /*of=*/3, "died");  // nobody asked
  EXPECT_EQ(group.SentTo(0), "");
  group.SayFate(5, /*of=*/4, "died: signal 6 (Aborted)");
  EXPECT_EQ(group.CauseAt(0, absl::StatusCode::kUnavailable), "rank 4 (host h4, pid 104) died: signal 6 (Aborted)");
}

TEST(Arbiter, OnlyTheFirstCauseIsTold) {
  Group group(3);
  group.Say(1, Frame::Type::kAgree, 1, "a");
  group.Know(2, "died");
  group.Lose(2);
  group.After(milliseconds(1));
  EXPECT_EQ(group.SentTo(0), Sent(Frame::Type::kCause, "rank 2 (host h2, pid 102) died"));
  group.Say(0, Frame::Type::kAgree, 1, "b");
  group.Say(0, Frame::Type::kTrouble, 1, "broken");
  group.Lose(1);
  group.After(milliseconds(5000));
  EXPECT_EQ(group.SentTo(0), "");
}

TEST(Arbiter, AnErrorWaitsForTheDeathThatExplainsIt) {
  Group group(3);
  group.Say(2, Frame::Type::kTrouble, 4, "connection closed");
  group.After(kTroublePatience - milliseconds(1));
  group.Lose(1);
  group.After(milliseconds(50));
  EXPECT_EQ(group.SentTo(0), "");
  group.Know(1, "died: signal 9 (Killed)");
  group.After(milliseconds(5));
  EXPECT_EQ(group.SentTo(0), Sent(Frame::Type::kCause, "rank 1 (host h1, pid 101) died: signal 9 (Killed)"));
}

TEST(Arbiter, AnErrorThatNothingExplainsIsTheCause) {
  Group group(3);
  group.Say(2, Frame::Type::kTrouble, 4, "no memory");
  group.Say(1, Frame::Type::kTrouble, 4, "connection closed");
  group.After(kTroublePatience);
  EXPECT_EQ(group.CauseAt(0, absl::StatusCode::kAborted), "rank 2 (host h2, pid 102) failed: no memory");
}

TEST(Arbiter, AnErrorAfterAFarewellIsTheLeavers) {
  Group group(3);
  group.Say(1, Frame::Type::kFarewell, 3, "all_reduce");
  EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kFarewell, "all_reduce"));
  group.Lose(1);
  group.After(milliseconds(1000));
  EXPECT_EQ(group.SentTo(2), "");
  group.Say(2, Frame::Type::kTrouble, 4, "connection closed");
  group.After(milliseconds(0));
  EXPECT_EQ(group.CauseAt(2, absl::StatusCode::kUnavailable),
            "rank 1 (host h1, pid 101) left the group after all_reduce #3");
}

TEST(Arbiter, TellsEachRankTwoFarewellsIfManyLeaveAfterTheSameCall) {
  constexpr int kRanks = 300;
  Group group(kRanks);
  for (int rank = kRanks - 1; rank >= 0; --rank) group.Say(rank, Frame::Type::kFarewell, 7, "barrier");
  EXPECT_LE(group.frames_sent(), size_t{2 * kRanks});
}

TEST(Arbiter, TellsTheFarewellsWithTheEarliestLastCallAndTheHubs) {
  for (const int hub : {0, 4}) {
    Group group(6, -1, hub);
    group.Say(1, Frame::Type::kFarewell, 7, "first");
    group.Say(2, Frame::Type::kFarewell, 8, "later");
    group.Say(3, Frame::Type::kFarewell, 7, "the same");
    group.Say(4 - hub, Frame::Type::kFarewell, 6, "earlier");
    group.Say(hub, Frame::Type::kFarewell, 9, "the hub's");
    EXPECT_EQ(group.SentTo(5),
              absl::StrCat(Sent(Frame::Type::kFarewell, "first"), "\n", Sent(Frame::Type::kFarewell, "earlier"), "\n",
                           Sent(Frame::Type::kFarewell, "the hub's")));
  }
}

TEST(Arbiter, AHubOnAnotherHostAsksRank0sNeighbourAboutRank0) {
  Group group(6, -1, /*hub=*/4);
  group.Lose(0);
  group.After(milliseconds(5));
  EXPECT_EQ(group.SentTo(1), Sent(Frame::Type::kAskFate));
  group.SayFate(1, 0, "exited with code 3");
  EXPECT_EQ(group.CauseAt(5, absl::StatusCode::kUnavailable), "rank 0 (host h0, pid 100) exited with code 3");
}

TEST(Arbiter, AnErrorAboutAnotherProcessGivesWayToTheErrorThatItFollowedFrom) {
  Group group(4);
  group.Trouble(2, absl::StatusCode::kUnavailable, "asking rank 0: Connection refused");
  group.Trouble(0, absl::StatusCode::kResourceExhausted, "Too many open files");
  group.Trouble(1, absl::StatusCode::kInternal, "later");
  group.Trouble(3, absl::StatusCode::kUnavailable, "asking rank 0: Connection refused");
  group.After(milliseconds(600));
  EXPECT_EQ(group.CauseAt(1, absl::StatusCode::kAborted), "rank 0 (host h0, pid 100) failed: Too many open files");
}

TEST(Arbiter, AnInquiryNamesWhoIsLateAndWhoIsSilent) {
  Group group(4);
  group.Say(0, Frame::Type::kTimeout, 5, "all_reduce", 3000);
  EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kAsk));
  group.Say(0, Frame::Type::kHere, 5, "all_reduce", 1);
  group.Say(1, Frame::Type::kHere, 4, "broadcast", 1);
  group.Say(2, Frame::Type::kHere, -1, "", 0);  // the answer to another question
  group.Say(2, Frame::Type::kHere, -1, "", 1);
  group.Say(1, Frame::Type::kTrouble, 4, "the connection broke");
  group.After(kInquiryPatience - milliseconds(1));
  EXPECT_EQ(group.SentTo(0), "");
  group.After(milliseconds(1));
  EXPECT_EQ(group.CauseAt(3, absl::StatusCode::kDeadlineExceeded),
            "all_reduce #5 timed out after 3s: "
            "rank 1 (host h1, pid 101) has not begun it: its last call was broadcast #4; "
            "rank 2 (host h2, pid 102) has not begun it, nor any call before; "
            "rank 3 (host h3, pid 103) does not answer (stopped, or unreachable)");
}

TEST(Arbiter, AnInquiryEndsWithTheLastAnswer) {
  Group group(2);
  group.Say(1, Frame::Type::kTimeout, 5, "all_reduce", 3000);
  group.Say(0, Frame::Type::kHere, 6, "all_reduce", 1);
  group.Say(1, Frame::Type::kHere, 5, "all_reduce", 1);
  EXPECT_EQ(group.CauseAt(1, absl::StatusCode::kDeadlineExceeded),
            "all_reduce #5 timed out after 3s: every rank has begun it");
}

TEST(Arbiter, TellsWhenAllAgree) {
  Group group(3);
  for (const int rank : {2, 0}) group.Say(rank, Frame::Type::kAgree, 7, "same");
  EXPECT_EQ(group.SentTo(1), "");
  group.Say(1, Frame::Type::kAgree, 7, "same");
  EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kAgreed));
}

TEST(Arbiter, AMismatchNamesEachSide) {
  Group group(4);
  group.Say(3, Frame::Type::kAgree, 7, "barrier");
  group.Say(0, Frame::Type::kAgree, 7, "all_reduce");
  group.Say(1, Frame::Type::kAgree, 7, "barrier");
  group.Say(2, Frame::Type::kAgree, 7, "all_reduce");
  EXPECT_EQ(group.CauseAt(2, absl::StatusCode::kInvalidArgument),
            "call #7 differs: ranks 0, 2 have all_reduce; ranks 1, 3 have barrier");
}

TEST(Arbiter, AMismatchDoesNotWaitForTheSilent) {
  Group group(3);
  group.Say(0, Frame::Type::kAgree, 7, "all_reduce");
  group.Say(2, Frame::Type::kAgree, 7, "barrier");
  group.After(kMismatchPatience);
  EXPECT_EQ(group.CauseAt(1, absl::StatusCode::kInvalidArgument),
            "call #7 differs: rank 0 has all_reduce; rank 2 has barrier; rank 1 did not say");
}

TEST(Arbiter, ALineStaysReadableWithHundredsOfRanks) {
  Group group(300);
  group.Say(0, Frame::Type::kTimeout, 5, "barrier", 1000);
  group.Say(0, Frame::Type::kHere, 5, "barrier", 1);
  group.After(kInquiryPatience);
  const std::string cause = group.CauseAt(0, absl::StatusCode::kDeadlineExceeded);
  EXPECT_LT(cause.size(), 1000u);
  EXPECT_EQ(cause.substr(cause.size() - 14), "; and 291 more");
}

TEST(Arbiter, SaysWhoHasNotBegunACallThatLastsLong) {
  Group group(3);
  group.Say(0, Frame::Type::kLong, 7, "all_reduce", 30000);
  EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kAsk));
  group.Say(0, Frame::Type::kHere, 7, "all_reduce", 1);
  group.Say(1, Frame::Type::kHere, 6, "broadcast", 1);
  group.Say(2, Frame::Type::kHere, 7, "all_reduce", 1);
  const std::string text =
      "all_reduce #7 has lasted 30s: rank 1 (host h1, pid 101) has not begun it: its last call was broadcast #6";
  EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kStall, text));
  // The others ask at about the same time. Nobody's group has failed.
  group.Say(2, Frame::Type::kLong, 7, "all_reduce", 31000);
  EXPECT_EQ(group.SentTo(1), "");
  group.After(milliseconds(6000));
  group.Say(2, Frame::Type::kLong, 7, "all_reduce", 41000);
  EXPECT_EQ(group.SentTo(1), Sent(Frame::Type::kAsk));
}

TEST(Arbiter, FindsThatRanksAreInDifferentCalls) {
  for (const Frame::Type type : {Frame::Type::kLong, Frame::Type::kTimeout}) {
    Group group(3);
    group.Say(0, type, 7, "barrier", 6000);
    EXPECT_EQ(group.SentTo(2), Sent(Frame::Type::kAsk));
    group.Say(0, Frame::Type::kHere, 7, "barrier", 1);
    group.Say(1, Frame::Type::kHere, 9, "all_reduce", 1);  // it does not wait for that one, and has begun two more
    group.Say(2, Frame::Type::kHere, 7, "barrier", 1);
    EXPECT_EQ(group.SentTo(2),
              Sent(Frame::Type::kCause, "call #7 differs: ranks 0, 2 have barrier; rank 1 has all_reduce"));
  }
}

TEST(Arbiter, ACallThatARankDoesNotRememberMayBeAny) {
  Group group(2);
  group.Say(0, Frame::Type::kLong, 7, "all_reduce", 30000);
  group.SentTo(0);
  group.Say(0, Frame::Type::kHere, 7, "all_reduce", 1);
  group.Say(1, Frame::Type::kHere, 99, "", 1);
  EXPECT_EQ(group.SentTo(0), Sent(Frame::Type::kStall, "all_reduce #7 has lasted 30s: every rank has begun it"));
}

TEST(Arbiter, ATimeoutOvertakesAQuestionAboutACallThatLastsLong) {
  Group group(2);
  group.Say(0, Frame::Type::kLong, 7, "all_reduce", 30000);
  group.Say(0, Frame::Type::kTimeout, 7, "all_reduce", 30000);
  group.SentTo(1);
  group.Say(0, Frame::Type::kHere, 7, "all_reduce", 2);
  group.Say(1, Frame::Type::kHere, 6, "broadcast", 2);
  EXPECT_EQ(group.SentTo(1), Sent(Frame::Type::kCause,
                                  "all_reduce #7 timed out after 30s: rank 1 (host h1, pid 101) has not begun it: its "
                                  "last call was broadcast #6"));
}

}  // namespace
}  // namespace lockstep::comm::internal
