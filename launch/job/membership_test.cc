#include "lockstep/tools/launch/internal/membership.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::launch::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Kind = Membership::Decision::Kind;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

Membership::Cause CauseOf(const std::string& text) {
  Membership::Cause cause;
  cause.text = text;
  return cause;
}

// Runs a Membership whose processes are only numbers.
class MembershipTest : public ::testing::Test {
 protected:
  void Make(int ranks, Membership::Limits limits = {}) {
    limits.ranks = ranks;
    membership_.emplace(limits, At(0));
  }

  void Ready(int slot, double seconds, int min_ranks = 1, int max_ranks = 0, const std::string& reason = "") {
    Membership::Ask ask;
    ask.reason = reason;
    ask.min_ranks = min_ranks;
    ask.max_ranks = max_ranks;
    ask.leave_timeout = absl::Seconds(10);
    membership_->OnReady(slot, membership_->generation(), ask, At(seconds));
    membership_->Update(At(seconds));
  }
  bool Fail(int slot, double seconds) {
    const bool goes_on = membership_->OnFailure(slot, CauseOf(absl::StrCat("rank ", slot, " died")), At(seconds));
    membership_->Update(At(seconds));
    return goes_on;
  }
  void Done(int slot, double seconds, bool all = true) {
    membership_->OnDone(slot, all);
    membership_->Update(At(seconds));
  }
  void Succeed(int slot, double seconds) {
    membership_->OnSuccess(slot);
    membership_->Update(At(seconds));
  }
  void StartAll(int slots) {
    Make(slots);
    for (int i = 0; i < slots; ++i) Ready(i, 1);
    Said();
  }

  // The decisions since the last call, such as "form 0 1 2" and "now 1: rank 0 died".
  std::vector<std::string> Said() {
    static const auto& names = *new std::map<Kind, std::string>{{Kind::kForm, "form"}, {Kind::kAfterStep, "after step"},
                                                                {Kind::kNow, "now"},   {Kind::kStart, "start"},
                                                                {Kind::kKill, "kill"}, {Kind::kGiveUp, "give up"}};
    std::vector<std::string> said;
    for (const Membership::Decision& decision : membership_->Take()) {
      said.push_back(absl::StrCat(names.at(decision.kind), " ", absl::StrJoin(decision.slots, " "),
                                  decision.reason.empty() ? "" : ": ", decision.reason));
    }
    return said;
  }

  std::optional<Membership> membership_;
};

TEST_F(MembershipTest, FormsWhenAllAreReady) {
  Make(3);
  Ready(2, 1);
  Ready(0, 1);
  EXPECT_FALSE(membership_->formed());
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 1);
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2"));
  EXPECT_EQ(membership_->generation(), 1);
}

TEST_F(MembershipTest, AFailureBeforeAProcessStaysIsNotItsConcern) {
  Make(2);
  EXPECT_FALSE(Fail(1, 2));
  EXPECT_EQ(membership_->ending(), "");
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatIsKilledStartsAgain) {
  Make(3);
  membership_->OnStays();
  EXPECT_TRUE(membership_->kept());
  EXPECT_FALSE(membership_->formed());
  ASSERT_TRUE(Fail(1, 2));
  EXPECT_THAT(Said(), ElementsAre("start 1"));
  Ready(0, 3);
  Ready(1, 3);
  ASSERT_TRUE(Fail(0, 4));  // it was ready
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  Ready(2, 5);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(0, 6);
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2"));
  EXPECT_EQ(membership_->restarts(), 2);
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatExitsEndsTheJob) {
  Make(2);
  Ready(0, 1);
  Membership::Cause cause = CauseOf("rank 1 exited with code 2");
  cause.exited = true;
  EXPECT_FALSE(membership_->OnFailure(1, cause, At(2)));
  EXPECT_EQ(membership_->ending(), "");
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAPlaceThatIsGivenUpEndsTheJob) {
  for (const int ready : {0, 1}) {
    Make(ready + 1);
    membership_->OnStays();
    if (ready == 1) Ready(1, 1);
    for (int i = 0; i < 5; ++i) {
      membership_->Update(At(100 * i));
      ASSERT_TRUE(Fail(0, 100 * i + 50));
    }
    EXPECT_EQ(Said().back(), "give up 0: rank 0 died");
    EXPECT_EQ(membership_->verdict().message(),
              absl::StrCat(ready, " of at least ", ready + 1, " rank", ready == 0 ? " is" : "s are",
                           " there, and no other one comes; at its start, rank 0 died"));
  }
}

TEST_F(MembershipTest, SaysWhyNoProcessComesBack) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 2));
  ASSERT_TRUE(Fail(1, 2));
  for (int i = 0; i < 5; ++i) {
    membership_->Update(At(100 * (i + 1)));
    for (const int slot : {0, 1}) {
      membership_->OnFailure(slot, CauseOf("a new process exited with code 1: found no file"), At(100 * (i + 1)));
    }
  }
  membership_->Update(At(1000));
  EXPECT_EQ(membership_->verdict().message(),
            "0 of at least 1 rank is there, and no other one comes; at its start, a new process exited with code 1: "
            "found no file; before, rank 0 died; rank 1 died");
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatEndsWithSuccessIsMissed) {
  Make(2);
  Ready(0, 1);
  EXPECT_TRUE(membership_->verdict().ok());
  Succeed(1, 2);
  EXPECT_EQ(membership_->verdict().message(), "1 of at least 2 ranks are there, and no other one comes");
  Make(2);
  Succeed(0, 1);
  EXPECT_FALSE(membership_->finished());
  Succeed(1, 2);
  EXPECT_TRUE(membership_->finished());
  EXPECT_TRUE(membership_->verdict().ok());
}

// A process may die before any has said how often they may start again.
TEST_F(MembershipTest, RestartsBeforeTheFirstGenerationCount) {
  Make(2);
  membership_->OnStays();
  ASSERT_TRUE(Fail(1, 1));
  Membership::Ask ask;
  ask.max_restarts = 2;
  for (const int slot : {0, 1}) membership_->OnReady(slot, 0, ask, At(2));
  membership_->Update(At(2));
  ASSERT_EQ(membership_->generation(), 1);
  EXPECT_TRUE(Fail(1, 30));
  EXPECT_FALSE(Fail(0, 60));
  EXPECT_EQ(membership_->ending(), "; after 2 restarts");
}

TEST_F(MembershipTest, SurvivorsKeepTheirOrderAndTheNewProcessFollows) {
  StartAll(3);
  ASSERT_TRUE(Fail(0, 20));
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died", "start 0"));
  Ready(2, 20);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 20);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  Ready(0, 22);
  EXPECT_THAT(Said(), ElementsAre("after step 1 2: process 0 is ready"));
  Ready(1, 22);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(2, 22);
  EXPECT_THAT(Said(), ElementsAre("form 1 2 0: process 0 is ready"));
  EXPECT_EQ(membership_->generation(), 3);
  EXPECT_EQ(membership_->restarts(), 1);
}

TEST_F(MembershipTest, TheOthersHaveAHeadStart) {
  Membership::Limits limits;
  limits.head_start = absl::Milliseconds(200);
  Make(3, limits);
  for (int slot = 0; slot < 3; ++slot) Ready(slot, 1);
  Said();
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died"));
  EXPECT_EQ(membership_->next_look(), At(20.2));
  EXPECT_TRUE(membership_->awaits_start());
  Ready(1, 20.05);
  Ready(2, 20.05);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  membership_->OnProgress(1, 7);
  membership_->Update(At(20.1));
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  // They do not complete a step in time.
  Fail(1, 30);
  membership_->Update(At(30.19));
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died"));
  membership_->Update(At(30.2));
  EXPECT_THAT(Said(), ElementsAre("start 1"));
  // The last one has nobody to wait for, and neither has a process that was no member.
  Fail(2, 31);
  EXPECT_THAT(Said(), ElementsAre("start 2"));
  Fail(0, 32);
  EXPECT_THAT(Said(), ElementsAre("start 0"));
}

TEST_F(MembershipTest, RanksThatAreTooFewHaveNoHeadStart) {
  Membership::Limits limits;
  limits.head_start = absl::Milliseconds(200);
  Make(3, limits);
  for (int slot = 0; slot < 3; ++slot) Ready(slot, 1, /*min_ranks=*/3);
  Said();
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died", "start 0"));
}

TEST_F(MembershipTest, ProcessesBeyondMaxRanksAreSpares) {
  Make(4);
  for (int slot = 0; slot < 4; ++slot) Ready(slot, 1, 1, /*max_ranks=*/slot == 3 ? 2 : 3);  // the smallest counts
  EXPECT_THAT(Said(), ElementsAre("form 0 1"));
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0"));
  Ready(1, 20, 1, 2);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  Ready(0, 21, 1, 2);
  EXPECT_THAT(Said(), IsEmpty());
  Succeed(1, 30);
  Succeed(2, 30);
  EXPECT_TRUE(membership_->finished());
}

TEST_F(MembershipTest, ANodeWhoseProcessesAreBeyondMaxRanksCounts) {
  Make(2);
  membership_->AddNode(2, 0, At(0));
  membership_->NeedNodes(2, /*more_may_come=*/false);
  for (int slot = 0; slot < 4; ++slot) Ready(slot, 1, 1, /*max_ranks=*/2);
  EXPECT_THAT(Said(), ElementsAre("form 0 1"));
  Fail(0, 20);
  Ready(1, 20, 1, 2);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0", "form 1 2: rank 0 died"));
}

TEST_F(MembershipTest, AMemberThatLeavesByItselfBreaksTheGeneration) {
  StartAll(2);
  Ready(1, 20);
  EXPECT_THAT(Said(), ElementsAre("now 0: rank 1 left generation 1"));
  Ready(0, 20);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 1 left generation 1"));
}

TEST_F(MembershipTest, AnErrorBreaksAGenerationThatIsToEndAfterAStep) {
  Make(3);
  for (int i = 0; i < 3; ++i) Ready(i, 1);
  ASSERT_TRUE(Fail(2, 20));
  Ready(0, 20);
  Ready(1, 20);
  Said();
  Ready(2, 21);
  EXPECT_THAT(Said(), ElementsAre("after step 0 1: process 2 is ready"));
  Ready(0, 22, 1, 0, "sample 7 is broken");
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 2: sample 7 is broken"));
  Ready(1, 22, 1, 0, "the group failed");
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2: rank 0 left generation 2: sample 7 is broken"));
}

TEST_F(MembershipTest, WhoDoesNotLeaveInTimeIsKilled) {
  StartAll(3);
  Fail(0, 20);
  Ready(1, 20);
  Said();
  membership_->Update(At(29.9));
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(membership_->next_look(), At(30));
  membership_->Update(At(30));
  EXPECT_THAT(Said(), ElementsAre("kill 2: rank 0 died"));
  membership_->Update(At(31));
  EXPECT_THAT(Said(), IsEmpty());  // once
  ASSERT_TRUE(Fail(2, 31));
  EXPECT_THAT(Said(), ElementsAre("start 2", "form 1: rank 0 died; rank 2 died"));
}

TEST_F(MembershipTest, AMessageAboutAnEarlierGenerationChangesNothing) {
  StartAll(2);
  Membership::Ask ask;
  membership_->OnReady(1, 0, ask, At(20));
  membership_->Update(At(20));
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, WithoutSurvivorsAllNewProcessesFormOneGeneration) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 20));
  ASSERT_TRUE(Fail(1, 20));
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0", "start 1"));
  Ready(1, 21);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(0, 25);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 0 died; rank 1 died"));
}

TEST_F(MembershipTest, NamesTheFirstFailures) {
  StartAll(6);
  Ready(5, 20);  // it saw that the group has failed
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Fail(i, 20));
  const std::vector<std::string> said = Said();
  EXPECT_EQ(said.back(), "form 5: rank 0 died; rank 1 died; rank 2 died; and 2 more");
}

TEST_F(MembershipTest, WaitsForTheLeastNumberOfRanks) {
  Make(2);
  Ready(0, 1, 2);
  Ready(1, 1, 2);
  ASSERT_TRUE(Fail(1, 20));
  Ready(0, 20, 2);
  EXPECT_THAT(Said(), ElementsAre("form 0 1", "now 0: rank 1 died", "start 1"));
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 1 died"));
}

TEST_F(MembershipTest, DoesNotWaitForEver) {
  Make(2);
  Ready(0, 1, 2);
  Ready(1, 1, 2);
  ASSERT_TRUE(Fail(1, 20));
  Ready(0, 20, 2);
  membership_->Update(At(20 + 599));
  EXPECT_TRUE(membership_->verdict().ok());
  membership_->Update(At(20 + 600));
  EXPECT_EQ(membership_->verdict().message(), "1 of at least 2 ranks are there after 10m; before, rank 1 died");
  EXPECT_TRUE(absl::IsDeadlineExceeded(membership_->verdict()));
}

TEST_F(MembershipTest, MoreRanksThanThereAreIsAnErrorAtOnce) {
  Make(2);
  Ready(0, 1, 3);
  Ready(1, 1, 3);
  EXPECT_EQ(membership_->verdict().message(), "2 of at least 3 ranks are there, and no other one comes");
}

TEST_F(MembershipTest, EndsAfterGenerationsWithoutAStep) {
  StartAll(2);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(Fail(1, 2 + i)) << i;
    Ready(0, 2 + i);
    Ready(1, 2 + i);
    Ready(0, 2 + i);
    ASSERT_THAT(Said(), ElementsAre("now 0: rank 1 died", "start 1", "form 0: rank 1 died",
                                    "after step 0: process 1 is ready", "form 0 1: process 1 is ready"));
  }
  EXPECT_FALSE(Fail(1, 12));
  EXPECT_EQ(membership_->ending(), "; the last 10 generations ended before they completed a step");
}

TEST_F(MembershipTest, EndsIfMembersLeaveAgainAndAgain) {
  StartAll(2);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(membership_->verdict().ok()) << i;
    Ready(1, 2);
    Ready(0, 2);
  }
  EXPECT_EQ(membership_->verdict().message(),
            "rank 1 left generation 10; the last 10 generations ended before they completed a step");
}

TEST_F(MembershipTest, EndsIfAProcessSaysSo) {
  StartAll(3);
  membership_->OnEndJob("sample 7 is broken");
  membership_->OnEndJob("sample 8 is broken");
  EXPECT_EQ(membership_->verdict(), absl::AbortedError("sample 7 is broken"));
  EXPECT_FALSE(Fail(1, 2));
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, AStepIsProgress) {
  StartAll(2);
  for (int i = 0; i < 50; ++i) {
    if (i % 4 == 3) membership_->OnProgress(0, i);
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    Ready(1, 2);
    Ready(0, 2);
  }
}

// Whenever the process that was started again has come, one fails; but alone, the other one has completed a step.
TEST_F(MembershipTest, AStepOfAGenerationThatEndedByPlanIsProgress) {
  StartAll(2);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    membership_->OnProgress(0, i);
    Ready(1, 2);
    Ready(0, 2);
  }
}

TEST_F(MembershipTest, TheSameStepAgainIsNoProgress) {
  StartAll(2);
  for (int i = 0; i < 10; ++i) {
    membership_->OnProgress(0, 7);
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    Ready(1, 2);
    Ready(0, 2);
  }
  EXPECT_FALSE(Fail(1, 2));
}

TEST_F(MembershipTest, GoesOnWithTheTimesOfEarlierRestarts) {
  Membership::Limits limits;
  limits.max_restarts = 1;
  limits.restart_window = absl::Minutes(1);
  for (const double made : {0, 90}) {
    limits.earlier_restarts = {At(made)};
    Membership::Memory memory;
    memory.restarts = 1;
    membership_.emplace(limits, memory, At(100));
    membership_->AddNode(2, 0, At(100));
    for (const int slot : {0, 1}) Ready(slot, 100);
    ASSERT_EQ(membership_->generation(), 1);
    EXPECT_EQ(Fail(1, 120), made == 0) << "made at " << made << " s";
  }
}

TEST_F(MembershipTest, HasABudgetOfRestarts) {
  Membership::Limits limits;
  limits.max_restarts = 2;
  Make(2, limits);
  Ready(0, 1);
  Ready(1, 1);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(Fail(1, 100 * i));
    Ready(0, 100 * i);
    Ready(1, 100 * i);
    Ready(0, 100 * i);
  }
  Said();
  EXPECT_FALSE(Fail(1, 300));
  EXPECT_EQ(membership_->ending(), "; after 2 restarts");
  Ready(0, 300);
  for (const std::string& said : Said()) EXPECT_THAT(said, Not(HasSubstr("start"))) << "after the end";
}

TEST_F(MembershipTest, GivesUpASlotWhoseProcessesFailAtTheirStart) {
  StartAll(2);
  ASSERT_TRUE(Fail(1, 100));
  Ready(0, 100);
  Said();
  double now = 100;
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(Fail(1, now += 0.5));
    if (i == 5) break;
    const absl::Time look = membership_->next_look();
    if (look != absl::InfiniteFuture()) now = absl::ToUnixSeconds(look) + 1;
    membership_->Update(At(now));
    ASSERT_THAT(Said(), ElementsAre("start 1")) << i;
  }
  EXPECT_THAT(Said(), ElementsAre("give up 1: rank 1 died"));
  Succeed(0, now);
  EXPECT_TRUE(membership_->finished());
}

TEST_F(MembershipTest, FinishesWhenAllMembersHave) {
  StartAll(3);
  Succeed(0, 20);
  EXPECT_FALSE(membership_->finished());
  Succeed(2, 20);
  Succeed(1, 20);
  EXPECT_TRUE(membership_->finished());
}

TEST_F(MembershipTest, NothingStartsWhenAllHaveDoneTheirWork) {
  StartAll(3);
  for (int slot = 0; slot < 3; ++slot) Done(slot, 2, /*all=*/false);
  EXPECT_TRUE(membership_->complete());
  EXPECT_EQ(Membership::LateFailures(membership_->memory()), "");
  EXPECT_TRUE(Fail(1, 3));
  Succeed(0, 4);
  membership_->Update(At(100));  // one takes long to end
  EXPECT_FALSE(membership_->finished());
  EXPECT_TRUE(Fail(2, 100));
  EXPECT_TRUE(membership_->finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(Membership::LateFailures(membership_->memory()), "rank 1 died; rank 2 died");
}

TEST_F(MembershipTest, OneMaySayForAllThatTheirWorkIsDone) {
  StartAll(3);
  Done(0, 2);
  ASSERT_TRUE(Fail(1, 2));                // it had no time to say so
  EXPECT_FALSE(membership_->complete());  // slot 2 may have to do its work again
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died", "start 1"));
  Done(2, 2);
  EXPECT_TRUE(membership_->complete());
  Ready(1, 3);
  Succeed(0, 3);
  Succeed(2, 3);
  EXPECT_TRUE(membership_->finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(Membership::LateFailures(membership_->memory()), "rank 1 died");
}

TEST_F(MembershipTest, OneThatHasNotDoneItsWorkStartsAgain) {
  StartAll(3);
  Done(0, 2, /*all=*/false);
  Done(2, 2, /*all=*/false);
  ASSERT_TRUE(Fail(1, 3));
  EXPECT_FALSE(membership_->complete());
  EXPECT_THAT(Said(), ElementsAre("start 1"));
}

TEST_F(MembershipTest, OneThatHasDoneItsWorkIsNotWaitedFor) {
  StartAll(3);
  Done(0, 2);
  ASSERT_TRUE(Fail(1, 3));
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died", "start 1"));
  Ready(2, 4);
  EXPECT_THAT(Said(), ElementsAre("form 2: rank 1 died"));
  membership_->Update(At(100));
  Done(2, 100);
  EXPECT_TRUE(membership_->complete());
  Succeed(2, 101);
  EXPECT_FALSE(membership_->finished());
  EXPECT_TRUE(Fail(0, 101));
  EXPECT_TRUE(membership_->finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(Membership::LateFailures(membership_->memory()), "rank 0 died");
}

TEST_F(MembershipTest, OneThatHasDoneItsWorkAndDiesBeforeTheOthersHaveIsMissed) {
  StartAll(2);
  Done(0, 2, /*all=*/false);
  ASSERT_TRUE(Fail(0, 3));
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 died", "start 0"));
  Ready(1, 4);
  EXPECT_THAT(Said(), ElementsAre("form 1: rank 0 died"));
}

TEST_F(MembershipTest, ANodeThatIsLostAfterTheWorkIsNotMissed) {
  Make(1);
  const int other = membership_->AddNode(1, 0, At(0));
  membership_->NeedNodes(2, /*more_may_come=*/true);
  for (const int slot : {0, 1}) Ready(slot, 1);
  for (const int slot : {0, 1}) Done(slot, 2);
  Said();
  membership_->LoseNode(other, CauseOf("host b was lost"), At(3));
  membership_->Update(At(3));
  Succeed(0, 4);
  EXPECT_TRUE(membership_->finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(Membership::LateFailures(membership_->memory()), "host b was lost");
}

TEST_F(MembershipTest, ANodeWhoseRanksHaveDoneTheirWorkCountsForTheOthers) {
  Make(1);
  membership_->AddNode(2, 0, At(0));
  membership_->NeedNodes(2, /*more_may_come=*/true);
  for (const int slot : {0, 1, 2}) Ready(slot, 1);
  Done(0, 2);
  Succeed(0, 3);
  ASSERT_TRUE(Fail(2, 3));
  Said();
  Ready(1, 4);
  EXPECT_THAT(Said(), ElementsAre("form 1: rank 2 died"));
}

// World::Run() is called again.
TEST_F(MembershipTest, RanksMayDoMoreWork) {
  StartAll(3);
  for (const int slot : {0, 1, 2}) Done(slot, 2);
  ASSERT_TRUE(Fail(2, 3));
  EXPECT_THAT(Said(), IsEmpty());
  Ready(0, 4);
  EXPECT_FALSE(membership_->complete());
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1", "start 2"));
  membership_->Update(At(100));  // what the other does between its works may take long
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 2 died"));
  Done(0, 101);
  Done(1, 101);
  EXPECT_TRUE(membership_->complete());
}

TEST_F(MembershipTest, ARankMayAskForMoreWorkBeforeAnotherOneHasSaidThatItsWorkIsDone) {
  StartAll(2);
  Done(0, 2);
  Ready(0, 2);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1"));
  Done(1, 2);
  membership_->Update(At(100));
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 0 left generation 1"));
  Done(1, 101);
  Done(0, 101);
  EXPECT_TRUE(membership_->complete());
}

TEST_F(MembershipTest, ANewProcessThatIsNotNeededDoesNotHoldUpTheEnd) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 20));
  Ready(1, 20);
  Ready(0, 21);  // rank 1 ends instead of leaving the generation for it
  Succeed(1, 22);
  EXPECT_TRUE(membership_->finished());
}

// Rank 0 was writing the last file, say.
TEST_F(MembershipTest, WhatAMemberOwedIsDoneByTheProcessAfterIt) {
  StartAll(2);
  Succeed(1, 20);
  ASSERT_TRUE(Fail(0, 21));
  EXPECT_FALSE(membership_->finished());
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  Ready(0, 22);
  EXPECT_THAT(Said(), ElementsAre("form 0: rank 0 died"));
  Succeed(0, 23);
  EXPECT_TRUE(membership_->finished());
}

TEST_F(MembershipTest, WhatAMemberThatHadLeftOwedIsDoneByTheProcessAfterIt) {
  StartAll(2);
  membership_->OnReady(0, 1, {}, At(20));
  ASSERT_TRUE(Fail(0, 21));
  Succeed(1, 22);
  EXPECT_FALSE(membership_->finished());
  Ready(0, 23);
  Said();
  Succeed(0, 24);
  EXPECT_TRUE(membership_->finished());
}

TEST_F(MembershipTest, AProcessThatIsBeyondMaxRanksAfterItWasARankDoesNotHoldUpTheEnd) {
  StartAll(2);
  for (int slot = 0; slot < 2; ++slot) Ready(slot, 20, 1, /*max_ranks=*/1);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1", "form 0: rank 0 left generation 1"));
  Succeed(0, 21);
  EXPECT_TRUE(membership_->finished());
}

TEST_F(MembershipTest, ASpareTakesThePlaceOfAMemberAtOnce) {
  Membership::Limits limits;
  limits.spares = 1;
  Make(2, limits);
  Ready(2, 1);
  Ready(0, 1);
  EXPECT_THAT(Said(), ElementsAre("form 0 2"));
  Ready(1, 1);
  EXPECT_THAT(Said(), IsEmpty());
  ASSERT_TRUE(Fail(0, 20));
  Ready(2, 20);
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 0 died", "start 0", "form 2 1: rank 0 died"));
  EXPECT_EQ(membership_->local_rank(2), 1);
  EXPECT_EQ(membership_->local_rank(1), 0);
  Ready(0, 21);  // the spare now
  EXPECT_THAT(Said(), IsEmpty());
}

// Random lives of processes. Whatever happens, decisions are about processes in the right state, a generation has
// each process once, and when failures end, the job finishes.
class RandomLife {
 public:
  explicit RandomLife(int seed)
      : random_(seed), limits_(Limits()), slots_(limits_.ranks + limits_.spares), membership_(limits_, now_) {
    processes_.resize(slots_);
  }

  void Run() {
    for (int event = 0; event < 300 && !over_; ++event) Step(/*may_fail=*/true);
    for (int event = 0; event < 2000 && !over_ && !membership_.finished(); ++event) Step(false);
    EXPECT_TRUE(over_ || membership_.finished()) << membership_.verdict();
  }

  bool over() const { return over_; }  // the limits ended the job

 private:
  enum class Is { kStarting, kReady, kMember, kGone };
  struct Process {
    Is is = Is::kStarting;
    int64_t left = 0, in = 0;
    bool told = false;
  };

  Membership::Limits Limits() {
    Membership::Limits limits;
    limits.ranks = 1 + Below(5);
    limits.spares = Below(3);
    limits.head_start = Below(2) * absl::Seconds(1);
    return limits;
  }

  int Below(int n) { return static_cast<int>(random_() % n); }

  void Step(bool may_fail) {
    now_ += absl::Milliseconds(Below(2000));
    const int slot = Below(slots_);
    Process& process = processes_[slot];
    Membership::Ask ask;
    ask.leave_timeout = absl::Seconds(10);
    if (process.is == Is::kMember && Below(2) == 0) membership_.OnProgress(slot, ++step_);
    if (may_fail && membership_.formed() && process.is != Is::kGone && Below(8) == 0) {
      Fail(slot);
    } else if (process.is == Is::kStarting || (process.is == Is::kMember && process.told)) {
      process.left = process.in;
      process.is = Is::kReady;
      process.told = false;
      membership_.OnReady(slot, process.left, ask, now_);
    } else if (!may_fail && process.is == Is::kMember && AllMembersOfOneGeneration()) {
      process.is = Is::kGone;
      membership_.OnSuccess(slot);
    }
    membership_.Update(now_);
    over_ |= !membership_.verdict().ok();
    for (const Membership::Decision& decision : membership_.Take()) Obey(decision);
  }

  void Fail(int slot) {
    processes_[slot] = Process();
    processes_[slot].is = Is::kGone;
    over_ |= !membership_.OnFailure(slot, CauseOf("it died"), now_);
  }

  bool AllMembersOfOneGeneration() const {
    return std::all_of(processes_.begin(), processes_.end(), [&](const Process& p) {
      return p.is == Is::kGone || p.is == Is::kReady ||
             (p.is == Is::kMember && p.in == membership_.generation() && !p.told);
    });
  }

  void Obey(const Membership::Decision& decision) {
    std::set<int> once(decision.slots.begin(), decision.slots.end());
    EXPECT_EQ(once.size(), decision.slots.size());
    for (const int slot : decision.slots) {
      Process& process = processes_[slot];
      if (decision.kind == Kind::kForm) {
        EXPECT_EQ(process.is, Is::kReady);
        process.is = Is::kMember;
        process.in = membership_.generation();
      } else if (decision.kind == Kind::kStart) {
        EXPECT_EQ(process.is, Is::kGone);
        process.is = Is::kStarting;
      } else if (decision.kind == Kind::kKill) {
        EXPECT_EQ(process.is, Is::kMember);
        Fail(slot);
      } else if (decision.kind != Kind::kGiveUp && process.is != Is::kGone) {  // it may have ended since
        EXPECT_EQ(process.is, Is::kMember);
        process.told = true;
      }
    }
    if (decision.kind != Kind::kForm) return;
    EXPECT_LE(static_cast<int>(decision.slots.size()), limits_.ranks);
    std::set<int> local_ranks;
    for (const int slot : decision.slots) local_ranks.insert(membership_.local_rank(slot));
    EXPECT_EQ(local_ranks.size(), decision.slots.size());
    EXPECT_LT(*local_ranks.rbegin(), limits_.ranks);
    for (const Process& process : processes_) {
      EXPECT_TRUE(process.is != Is::kMember || process.in == membership_.generation()) << "two generations at once";
    }
  }

  std::mt19937 random_;
  absl::Time now_ = At(0);
  const Membership::Limits limits_;
  const int slots_;
  int64_t step_ = 0;
  bool over_ = false;
  Membership membership_;
  std::vector<Process> processes_;
};

TEST(Membership, SurvivesRandomLives) {
  int finished = 0;
  for (int seed = 0; seed < 5000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomLife life(seed);
    life.Run();
    finished += !life.over();
  }
  EXPECT_GT(finished, 2500);
}

}  // namespace
}  // namespace lockstep::launch::internal
