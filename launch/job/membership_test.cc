#include "lockstep/launch/job/membership.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/rank_plan.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using State = RankPlan::State;

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// A signal has killed a process, or a host.
Failure CauseOf(const std::string& text) {
  Failure cause;
  cause.status = absl::AbortedError(text);
  cause.killed = true;
  return cause;
}

// A Membership whose processes are only what agents say of them. An agent has a free port for each generation.
class Job {
 public:
  enum class Kind { kForm, kAfterStep, kNow, kGiveUp, kStart, kKill };
  struct Change {
    Kind kind;
    std::vector<int> slots;
    std::string reason;
  };

  Job(int ranks, int spares, const Membership::Limits& limits) : membership_(limits) {
    job_.start = 1;
    job_.members.push_back(NewMember(ranks, spares));
  }

  // Before anything else.
  void Start(double seconds, const std::vector<absl::Time>& restarts) {
    job_.restarts = static_cast<int>(restarts.size());
    membership_.Start(job_, restarts, At(seconds));
  }
  // Another agent leads, which knows the plan.
  void LeadAnew(double seconds) {
    job_.ranks = plan();
    membership_.Start(job_, {}, At(seconds));
  }

  // A second node, whose slots follow the ones of the first.
  void AddNode(int ranks, double seconds) {
    job_.members.push_back(NewMember(ranks, 0));
    membership_.Add(job_.members.back(), At(seconds));
  }
  void LoseNode(const std::string& why, double seconds) {
    agents_.erase(job_.members.back().agent);
    membership_.Lose(job_.members.back(), why, At(seconds));
  }

  void Stay() { stays_ = true; }
  void Progress(int slot, int64_t step) {
    const std::string& agent = plan().nodes[plan().slots[slot].node].agent;
    agents_[agent].progressed = plan().generation;
    agents_[agent].step = step;
  }
  SlotState& slot(int slot) { return slots_[slot]; }
  Membership::NeededNodes needed;

  void Update(double seconds) {
    size_t next = 0;
    for (auto& [id, agent] : agents_) {
      const auto first = slots_.begin() + static_cast<std::ptrdiff_t>(next);
      next += agent.ranks + agent.spares;
      if (stays_) agent.slots.assign(first, slots_.begin() + static_cast<std::ptrdiff_t>(next));
      agent.link_port = 1 + static_cast<int>(plan().generation);
    }
    const RankPlan before = plan();
    membership_.Update(agents_, needed, At(seconds));
    Compare(before);
    for (size_t i = 0; i < slots_.size(); ++i) {
      const int process = plan().slots[i].process;
      if (process == slots_[i].process) continue;
      slots_[i] = SlotState();
      slots_[i].process = process;
    }
  }

  // Returns the changes since the last call.
  std::vector<Change> Take() { return std::exchange(changes_, {}); }

  const Membership& membership() const { return membership_; }
  const RankPlan& plan() const { return membership_.plan(); }

 private:
  Member NewMember(int ranks, int spares) {
    Member member;
    member.agent = absl::StrCat("node ", ++job_.entries);
    member.entry = job_.entries;
    member.ranks = ranks;
    member.spares = spares;
    AgentState& agent = agents_[member.agent];
    agent.entry = member.entry;
    agent.ranks = ranks;
    agent.spares = spares;
    slots_.resize(slots_.size() + ranks + spares);
    return member;
  }

  void Add(Kind kind, std::vector<int> slots, const std::string& reason) {
    if (!slots.empty()) changes_.push_back({kind, std::move(slots), reason});
  }

  void Compare(const RankPlan& before) {
    const RankPlan& now = plan();
    std::vector<int> given_up, started, killed;
    for (int i = 0; i < static_cast<int>(now.slots.size()); ++i) {
      const RankPlan::Slot &is = now.slots[i], &was = before.slots[i];
      if (is.state == State::kGivenUp && was.state != is.state) given_up.push_back(i);
      if (is.process > was.process) started.push_back(i);
      if (is.late && !was.late) killed.push_back(i);
    }
    const bool is_ordered = now.order != before.order || now.order_reason != before.order_reason;
    if (is_ordered && now.order != RegroupOrder::kGoOn) {
      Add(now.order == RegroupOrder::kNow ? Kind::kNow : Kind::kAfterStep, now.SlotsIn(State::kMember),
          now.order_reason);
    }
    for (const int slot : given_up) {
      Add(Kind::kGiveUp, {slot}, std::string(slots_[slot].failure.status.message()));
    }
    Add(Kind::kStart, started, "");
    Add(Kind::kKill, killed, now.Reason());
    if (now.generation != before.generation) Add(Kind::kForm, now.members, now.reason);
  }

  JobState job_;
  Membership membership_;
  Agents agents_;
  std::vector<SlotState> slots_;
  bool stays_ = false;
  std::vector<Change> changes_;
};

class MembershipTest : public ::testing::Test {
 protected:
  void Make(int ranks, const Membership::Limits& limits = {}, int spares = 0,
            const std::vector<absl::Time>& restarts = {}, double seconds = 0) {
    job_.emplace(ranks, spares, limits);
    job_->Start(seconds, restarts);
  }

  // A process waits for a generation, and has left the last one.
  void Ask(int slot, const JoinOptions& ask) {
    job_->Stay();
    SlotState& process = job_->slot(slot);
    process.phase = SlotState::Phase::kReady;
    process.left = plan().generation;
    process.done = process.all_done = false;
    process.ask = ask;
  }
  void Ready(int slot, double seconds, int min_ranks = 1, int max_ranks = 0, const std::string& reason = "") {
    JoinOptions ask;
    ask.reason = reason;
    ask.min_ranks = min_ranks;
    ask.max_ranks = max_ranks;
    Ask(slot, ask);
    job_->Update(seconds);
  }
  // Returns whether the others go on.
  bool Fail(int slot, double seconds, const Failure& cause) {
    job_->slot(slot).phase = SlotState::Phase::kFailed;
    job_->slot(slot).failure = cause;
    const bool was_over = !verdict().ok();
    job_->Update(seconds);
    return plan().stays && !was_over && !plan().ending && (plan().formed || cause.killed);
  }
  bool Fail(int slot, double seconds) { return Fail(slot, seconds, CauseOf(absl::StrCat("rank ", slot, " died"))); }
  void Done(int slot, double seconds, bool all = true) {
    job_->slot(slot).done = true;
    job_->slot(slot).all_done = all;
    job_->Update(seconds);
  }
  void Succeed(int slot, double seconds) {
    job_->slot(slot).phase = SlotState::Phase::kSucceeded;
    job_->Update(seconds);
  }
  void StartAll(int slots) {
    Make(slots);
    for (int i = 0; i < slots; ++i) Ready(i, 1);
    Said();
  }

  // Returns the changes since the last call as texts, such as "form 0 1 2" and "now 1: rank 0 died".
  std::vector<std::string> Said() {
    using Kind = Job::Kind;
    static const auto& names = *new std::map<Kind, std::string>{{Kind::kForm, "form"}, {Kind::kAfterStep, "after step"},
                                                                {Kind::kNow, "now"},   {Kind::kStart, "start"},
                                                                {Kind::kKill, "kill"}, {Kind::kGiveUp, "give up"}};
    std::vector<std::string> said;
    for (const Job::Change& change : job_->Take()) {
      said.push_back(absl::StrCat(names.at(change.kind), " ", absl::StrJoin(change.slots, " "),
                                  change.reason.empty() ? "" : ": ", change.reason));
    }
    return said;
  }

  const RankPlan& plan() const { return job_->plan(); }
  const absl::Status& verdict() const { return plan().verdict; }
  bool finished() const { return job_->membership().finished(); }
  std::string ending() const { return plan().ending.value_or(""); }

  std::optional<Job> job_;
};

TEST_F(MembershipTest, FormsWhenAllAreReady) {
  Make(3);
  Ready(2, 1);
  Ready(0, 1);
  EXPECT_FALSE(plan().formed);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 1);
  EXPECT_THAT(Said(), ElementsAre("form 0 1 2"));
  EXPECT_EQ(plan().generation, 1);
}

TEST_F(MembershipTest, AFailureBeforeAProcessStaysIsNotItsConcern) {
  Make(2);
  EXPECT_FALSE(Fail(1, 2));
  EXPECT_EQ(ending(), "");
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatIsKilledStartsAgain) {
  Make(3);
  job_->Stay();
  job_->Update(1);
  EXPECT_TRUE(plan().stays);
  EXPECT_FALSE(plan().formed);
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
  EXPECT_EQ(plan().restarts, 2);
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatExitsEndsTheJob) {
  Make(2);
  Ready(0, 1);
  Failure cause = CauseOf("rank 1 exited with code 2");
  cause.killed = false;
  EXPECT_FALSE(Fail(1, 2, cause));
  EXPECT_EQ(ending(), "");
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAPlaceThatIsGivenUpEndsTheJob) {
  for (const int ready : {0, 1}) {
    Make(ready + 1);
    job_->Stay();
    if (ready == 1) Ready(1, 1);
    for (int i = 0; i < 5; ++i) {
      job_->Update(100 * i);
      ASSERT_TRUE(Fail(0, 100 * i + 50));
    }
    EXPECT_EQ(Said().back(), "give up 0: rank 0 died");
    EXPECT_EQ(verdict().message(),
              absl::StrCat(ready, " of at least ", ready + 1, " rank", ready == 0 ? " is" : "s are",
                           " there, and no other one comes; at its start, rank 0 died"));
  }
}

TEST_F(MembershipTest, SaysWhyNoProcessComesBack) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 2));
  ASSERT_TRUE(Fail(1, 2));
  for (int i = 0; i < 5; ++i) {
    job_->Update(100 * (i + 1));
    for (const int slot : {0, 1}) {
      Fail(slot, 100 * (i + 1), CauseOf("a new process exited with code 1: found no file"));
    }
  }
  job_->Update(1000);
  EXPECT_EQ(verdict().message(),
            "0 of at least 1 rank is there, and no other one comes; at its start, a new process exited with code 1: "
            "found no file; before, rank 0 died; rank 1 died");
}

TEST_F(MembershipTest, BeforeTheFirstGenerationAProcessThatEndsWithSuccessIsMissed) {
  Make(2);
  Ready(0, 1);
  EXPECT_TRUE(verdict().ok());
  Succeed(1, 2);
  EXPECT_EQ(verdict().message(), "1 of at least 2 ranks are there, and no other one comes");
  Make(2);
  job_->Stay();
  Succeed(0, 1);
  EXPECT_FALSE(finished());
  Succeed(1, 2);
  EXPECT_TRUE(finished());
  EXPECT_TRUE(verdict().ok());
}

// A process may die before any has said how often they may start again.
TEST_F(MembershipTest, RestartsBeforeTheFirstGenerationCount) {
  Make(2);
  job_->Stay();
  ASSERT_TRUE(Fail(1, 1));
  JoinOptions ask;
  ask.max_restarts = 2;
  for (const int slot : {0, 1}) Ask(slot, ask);
  job_->Update(2);
  ASSERT_EQ(plan().generation, 1);
  EXPECT_TRUE(Fail(1, 30));
  EXPECT_FALSE(Fail(0, 60));
  EXPECT_EQ(ending(), "; after 2 restarts");
}

// The next generation is told of the failure that ended the one before.
class OwnFailureTest : public MembershipTest {
 protected:
  void Leave(int slot, double seconds, const std::string& reason, const std::optional<StepFailure>& failure) {
    JoinOptions ask;
    ask.reason = reason;
    ask.failure = failure;
    Ask(slot, ask);
    job_->Update(seconds);
  }
  void Fail(int slot, double seconds, bool killed, bool did_not_leave, bool is_own) {
    Failure failure = CauseOf(absl::StrCat("rank ", slot, " died"));
    failure.killed = killed;
    failure.did_not_leave = did_not_leave;
    failure.time_ns = absl::ToInt64Nanoseconds(absl::Seconds(seconds));
    if (is_own) failure.own = StepFailure{-1, slot, absl::StrCat("cause ", slot)};
    ASSERT_TRUE(MembershipTest::Fail(slot, seconds, failure));
  }
  // "step 30, rank 2: full", of the generation that has formed now.
  std::string Told() {
    for (const Job::Change& change : job_->Take()) {
      if (change.kind != Job::Kind::kForm) continue;
      const std::optional<StepFailure>& failure = plan().failure;
      if (!failure) return "nothing";
      return absl::StrCat("step ", failure->step, ", rank ", failure->rank, ": ", failure->cause);
    }
    return "no generation";
  }
};

TEST_F(OwnFailureTest, IsTheErrorOfTheMemberThatMadeItWhoeverLeavesFirst) {
  StartAll(3);
  Leave(0, 2, "rank 2 (host a, pid 5) failed: error of rank 2", std::nullopt);
  Leave(2, 3, "error of rank 2", StepFailure{30, 2, "full"});
  Leave(1, 4, "error of rank 1", StepFailure{30, 1, "empty"});
  EXPECT_EQ(Told(), "step 30, rank 2: full");
  for (const int slot : {0, 1, 2}) Leave(slot, 5, "rank 1: all_reduce #4 timed out", std::nullopt);
  EXPECT_EQ(Told(), "nothing");
}

TEST_F(OwnFailureTest, SurvivesAnotherLeader) {
  StartAll(2);
  Leave(1, 2, "error of all ranks", StepFailure{30, -1, "it is not finite"});
  job_->LeadAnew(3);
  Leave(0, 3, "error of all ranks", StepFailure{30, -1, "it is not finite"});
  EXPECT_EQ(Told(), "step 30, rank -1: it is not finite");
}

TEST_F(OwnFailureTest, IsThatOfTheProcessThatFailedFirst) {
  StartAll(3);
  Fail(1, 3, /*killed=*/false, /*did_not_leave=*/false, /*is_own=*/true);
  Fail(2, 2, /*killed=*/false, /*did_not_leave=*/false, /*is_own=*/true);
  Leave(0, 4, "error of rank 0", StepFailure{30, 0, "full"});
  EXPECT_EQ(Told(), "step -1, rank 2: cause 2");
}

TEST_F(OwnFailureTest, IsNothingIfTheFirstWasKilledFromOutsideUnlessAnotherWasStuck) {
  StartAll(3);
  Fail(1, 2, /*killed=*/true, /*did_not_leave=*/false, /*is_own=*/false);
  Fail(2, 3, /*killed=*/false, /*did_not_leave=*/false, /*is_own=*/true);
  Leave(0, 4, "rank 1 died", std::nullopt);
  EXPECT_EQ(Told(), "nothing");
  for (const int slot : {1, 2}) Ready(slot, 5);
  Leave(0, 6, "", std::nullopt);
  ASSERT_EQ(plan().members.size(), 3);
  Said();
  Fail(1, 20, /*killed=*/true, /*did_not_leave=*/false, /*is_own=*/false);
  Fail(2, 31, /*killed=*/false, /*did_not_leave=*/true, /*is_own=*/true);
  Leave(0, 32, "rank 1 died", std::nullopt);
  EXPECT_EQ(Told(), "step -1, rank 2: cause 2");
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
  EXPECT_EQ(plan().generation, 3);
  EXPECT_EQ(plan().restarts, 1);
}

TEST_F(MembershipTest, TheOthersHaveAHeadStart) {
  Membership::Limits limits;
  limits.restarts.head_start = absl::Milliseconds(200);
  Make(3, limits);
  for (int slot = 0; slot < 3; ++slot) Ready(slot, 1);
  Said();
  Fail(0, 20);
  EXPECT_THAT(Said(), ElementsAre("now 1 2: rank 0 died"));
  EXPECT_EQ(job_->membership().next_look(), At(20.2));
  EXPECT_TRUE(!plan().SlotsIn(State::kAwaited).empty());
  Ready(1, 20.05);
  Ready(2, 20.05);
  EXPECT_THAT(Said(), ElementsAre("form 1 2: rank 0 died"));
  job_->Progress(1, 7);
  job_->Update(20.1);
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  // They do not complete a step in time.
  Fail(1, 30);
  job_->Update(30.19);
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died"));
  job_->Update(30.2);
  EXPECT_THAT(Said(), ElementsAre("start 1"));
  // The last one has nobody to wait for, and neither has a process that was no member.
  Fail(2, 31);
  EXPECT_THAT(Said(), ElementsAre("start 2"));
  Fail(0, 32);
  EXPECT_THAT(Said(), ElementsAre("start 0"));
}

TEST_F(MembershipTest, RanksThatAreTooFewHaveNoHeadStart) {
  Membership::Limits limits;
  limits.restarts.head_start = absl::Milliseconds(200);
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
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, ANodeWhoseProcessesAreBeyondMaxRanksCounts) {
  Make(2);
  job_->AddNode(2, 0);
  job_->needed = {2, 2};
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
  job_->Update(29.9);
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(job_->membership().next_look(), At(30));
  job_->Update(30);
  EXPECT_THAT(Said(), ElementsAre("kill 2: rank 0 died"));
  job_->Update(31);
  EXPECT_THAT(Said(), IsEmpty());  // once
  ASSERT_TRUE(Fail(2, 31));
  EXPECT_THAT(Said(), ElementsAre("start 2", "form 1: rank 0 died; rank 2 died"));
}

TEST_F(MembershipTest, AMessageAboutAnEarlierGenerationChangesNothing) {
  StartAll(2);
  job_->slot(1).left = 0;
  job_->slot(1).ask.min_ranks = 2;
  job_->Update(20);
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
  job_->Update(20 + 599);
  EXPECT_TRUE(verdict().ok());
  job_->Update(20 + 600);
  EXPECT_EQ(verdict().message(), "1 of at least 2 ranks are there after 10m; before, rank 1 died");
  EXPECT_TRUE(absl::IsDeadlineExceeded(verdict()));
}

TEST_F(MembershipTest, MoreRanksThanThereAreIsAnErrorAtOnce) {
  Make(2);
  Ready(0, 1, 3);
  Ready(1, 1, 3);
  EXPECT_EQ(verdict().message(), "2 of at least 3 ranks are there, and no other one comes");
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
  EXPECT_EQ(ending(), "; the last 10 generations ended before they completed a step");
}

TEST_F(MembershipTest, EndsIfMembersLeaveAgainAndAgain) {
  StartAll(2);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(verdict().ok()) << i;
    Ready(1, 2);
    Ready(0, 2);
  }
  EXPECT_EQ(verdict().message(),
            "rank 1 left generation 10; the last 10 generations ended before they completed a step");
}

TEST_F(MembershipTest, EndsIfAProcessSaysSo) {
  StartAll(3);
  job_->slot(1).ends_job = "sample 7 is broken";
  job_->Update(1);
  job_->slot(0).ends_job = "sample 8 is broken";
  job_->Update(1);
  EXPECT_EQ(verdict(), absl::AbortedError("sample 7 is broken"));
  EXPECT_FALSE(Fail(1, 2));
  EXPECT_THAT(Said(), IsEmpty());
}

TEST_F(MembershipTest, AStepIsProgress) {
  StartAll(2);
  for (int i = 0; i < 50; ++i) {
    if (i % 4 == 3) job_->Progress(0, i);
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
    job_->Progress(0, i);
    Ready(1, 2);
    Ready(0, 2);
  }
}

TEST_F(MembershipTest, TheSameStepAgainIsNoProgress) {
  StartAll(2);
  for (int i = 0; i < 10; ++i) {
    job_->Progress(0, 7);
    ASSERT_TRUE(Fail(1, 2)) << i;
    Ready(0, 2);
    Ready(1, 2);
    Ready(0, 2);
  }
  EXPECT_FALSE(Fail(1, 2));
}

TEST_F(MembershipTest, GoesOnWithTheTimesOfEarlierRestarts) {
  Membership::Limits limits;
  limits.restarts.max_restarts = 1;
  limits.restarts.window = absl::Minutes(1);
  for (const double made : {0, 90}) {
    Make(2, limits, 0, {At(made)}, 100);
    for (const int slot : {0, 1}) Ready(slot, 100);
    ASSERT_EQ(plan().generation, 1);
    EXPECT_EQ(Fail(1, 120), made == 0) << "made at " << made << " s";
  }
}

TEST_F(MembershipTest, HasABudgetOfRestarts) {
  Membership::Limits limits;
  limits.restarts.max_restarts = 2;
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
  EXPECT_EQ(ending(), "; after 2 restarts");
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
    const absl::Time look = job_->membership().next_look();
    if (look != absl::InfiniteFuture()) now = absl::ToUnixSeconds(look) + 1;
    job_->Update(now);
    ASSERT_THAT(Said(), ElementsAre("start 1")) << i;
  }
  EXPECT_THAT(Said(), ElementsAre("give up 1: rank 1 died"));
  Succeed(0, now);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, FinishesWhenAllMembersHave) {
  StartAll(3);
  Succeed(0, 20);
  EXPECT_FALSE(finished());
  Succeed(2, 20);
  Succeed(1, 20);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, NothingStartsWhenAllHaveDoneTheirWork) {
  StartAll(3);
  for (int slot = 0; slot < 3; ++slot) Done(slot, 2, /*all=*/false);
  EXPECT_TRUE(plan().complete);
  EXPECT_EQ(plan().LateFailures(), "");
  EXPECT_TRUE(Fail(1, 3));
  Succeed(0, 4);
  job_->Update(100);  // one takes long to end
  EXPECT_FALSE(finished());
  EXPECT_TRUE(Fail(2, 100));
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "rank 1 died; rank 2 died");
}

TEST_F(MembershipTest, OneMaySayForAllThatTheirWorkIsDone) {
  StartAll(3);
  Done(0, 2);
  ASSERT_TRUE(Fail(1, 2));        // it had no time to say so
  EXPECT_FALSE(plan().complete);  // slot 2 may have to do its work again
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died", "start 1"));
  Done(2, 2);
  EXPECT_TRUE(plan().complete);
  Ready(1, 3);
  Succeed(0, 3);
  Succeed(2, 3);
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "rank 1 died");
}

TEST_F(MembershipTest, OneThatHasNotDoneItsWorkStartsAgain) {
  StartAll(3);
  Done(0, 2, /*all=*/false);
  Done(2, 2, /*all=*/false);
  ASSERT_TRUE(Fail(1, 3));
  EXPECT_FALSE(plan().complete);
  EXPECT_THAT(Said(), ElementsAre("start 1"));
}

TEST_F(MembershipTest, OneThatHasDoneItsWorkIsNotWaitedFor) {
  StartAll(3);
  Done(0, 2);
  ASSERT_TRUE(Fail(1, 3));
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 1 died", "start 1"));
  Ready(2, 4);
  EXPECT_THAT(Said(), ElementsAre("form 2: rank 1 died"));
  job_->Update(100);
  Done(2, 100);
  EXPECT_TRUE(plan().complete);
  Succeed(2, 101);
  EXPECT_FALSE(finished());
  EXPECT_TRUE(Fail(0, 101));
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "rank 0 died");
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
  job_->AddNode(1, 0);
  job_->needed = {2, 3};
  for (const int slot : {0, 1}) Ready(slot, 1);
  for (const int slot : {0, 1}) Done(slot, 2);
  Said();
  job_->LoseNode("host b was lost", 3);
  job_->Update(3);
  Succeed(0, 4);
  EXPECT_TRUE(finished());
  EXPECT_THAT(Said(), IsEmpty());
  EXPECT_EQ(plan().LateFailures(), "host b was lost");
}

TEST_F(MembershipTest, ANodeWhoseRanksHaveDoneTheirWorkCountsForTheOthers) {
  Make(1);
  job_->AddNode(2, 0);
  job_->needed = {2, 3};
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
  EXPECT_FALSE(plan().complete);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1", "start 2"));
  job_->Update(100);  // what the other does between its works may take long
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 2 died"));
  Done(0, 101);
  Done(1, 101);
  EXPECT_TRUE(plan().complete);
}

TEST_F(MembershipTest, ARankMayAskForMoreWorkBeforeAnotherOneHasSaidThatItsWorkIsDone) {
  StartAll(2);
  Done(0, 2);
  Ready(0, 2);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1"));
  Done(1, 2);
  job_->Update(100);
  EXPECT_THAT(Said(), IsEmpty());
  Ready(1, 100);
  EXPECT_THAT(Said(), ElementsAre("form 0 1: rank 0 left generation 1"));
  Done(1, 101);
  Done(0, 101);
  EXPECT_TRUE(plan().complete);
}

TEST_F(MembershipTest, ANewProcessThatIsNotNeededDoesNotHoldUpTheEnd) {
  StartAll(2);
  ASSERT_TRUE(Fail(0, 20));
  Ready(1, 20);
  Ready(0, 21);  // rank 1 ends instead of leaving the generation for it
  Succeed(1, 22);
  EXPECT_TRUE(finished());
}

// Rank 0 was writing the last file, say.
TEST_F(MembershipTest, WhatAMemberOwedIsDoneByTheProcessAfterIt) {
  StartAll(2);
  Succeed(1, 20);
  ASSERT_TRUE(Fail(0, 21));
  EXPECT_FALSE(finished());
  EXPECT_THAT(Said(), ElementsAre("start 0"));
  Ready(0, 22);
  EXPECT_THAT(Said(), ElementsAre("form 0: rank 0 died"));
  Succeed(0, 23);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, WhatAMemberThatHadLeftOwedIsDoneByTheProcessAfterIt) {
  StartAll(2);
  Ask(0, {});
  job_->Update(20);
  ASSERT_TRUE(Fail(0, 21));
  Succeed(1, 22);
  EXPECT_FALSE(finished());
  Ready(0, 23);
  Said();
  Succeed(0, 24);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, AProcessThatIsBeyondMaxRanksAfterItWasARankDoesNotHoldUpTheEnd) {
  StartAll(2);
  for (int slot = 0; slot < 2; ++slot) Ready(slot, 20, 1, /*max_ranks=*/1);
  EXPECT_THAT(Said(), ElementsAre("now 1: rank 0 left generation 1", "form 0: rank 0 left generation 1"));
  Succeed(0, 21);
  EXPECT_TRUE(finished());
}

TEST_F(MembershipTest, ASpareTakesThePlaceOfAMemberAtOnce) {
  Make(2, {}, /*spares=*/1);
  Ready(2, 1);
  Ready(0, 1);
  EXPECT_THAT(Said(), ElementsAre("form 0 2"));
  Ready(1, 1);
  EXPECT_THAT(Said(), IsEmpty());
  ASSERT_TRUE(Fail(0, 20));
  Ready(2, 20);
  EXPECT_THAT(Said(), ElementsAre("now 2: rank 0 died", "start 0", "form 2 1: rank 0 died"));
  EXPECT_EQ(plan().slots[2].local_rank, 1);
  EXPECT_EQ(plan().slots[1].local_rank, 0);
  Ready(0, 21);  // the spare now
  EXPECT_THAT(Said(), IsEmpty());
}

// Random lives of processes. Whatever happens, decisions are about processes in the right state, a generation has
// each process once, and when failures end, the job finishes.
class RandomLife {
 public:
  explicit RandomLife(int seed)
      : random_(seed), ranks_(1 + Below(5)), spares_(Below(3)), job_(ranks_, spares_, Limits()) {
    processes_.resize(ranks_ + spares_);
    job_.Start(0, {});
    job_.Stay();
  }

  void Run() {
    for (int event = 0; event < 300 && !over(); ++event) Step(/*may_fail=*/true);
    for (int event = 0; event < 2000 && !over() && !job_.membership().finished(); ++event) Step(false);
    EXPECT_TRUE(over() || job_.membership().finished()) << job_.plan().verdict;
  }

  bool over() const { return !job_.plan().verdict.ok(); }  // the limits ended the job

 private:
  enum class Is { kStarting, kReady, kMember, kGone };
  struct Process {
    Is is = Is::kStarting;
    int64_t in = 0;
    bool told = false;
  };

  Membership::Limits Limits() {
    Membership::Limits limits;
    limits.restarts.head_start = Below(2) * absl::Seconds(1);
    return limits;
  }

  int Below(int n) { return static_cast<int>(random_() % n); }

  void Step(bool may_fail) {
    now_ += 0.001 * Below(2000);
    const int slot = Below(ranks_ + spares_);
    Process& process = processes_[slot];
    if (process.is == Is::kMember && Below(2) == 0) job_.Progress(slot, ++step_);
    if (may_fail && job_.plan().formed && process.is != Is::kGone && Below(8) == 0) {
      Fail(slot);
    } else if (process.is == Is::kStarting || (process.is == Is::kMember && process.told)) {
      process.is = Is::kReady;
      process.told = false;
      job_.slot(slot).phase = SlotState::Phase::kReady;
      job_.slot(slot).left = process.in;
    } else if (!may_fail && process.is == Is::kMember && AllMembersOfOneGeneration()) {
      process.is = Is::kGone;
      job_.slot(slot).phase = SlotState::Phase::kSucceeded;
    }
    job_.Update(now_);
    for (const Job::Change& change : job_.Take()) Apply(change);
  }

  void Fail(int slot) {
    processes_[slot] = Process();
    processes_[slot].is = Is::kGone;
    job_.slot(slot).phase = SlotState::Phase::kFailed;
    job_.slot(slot).failure = CauseOf("it died");
  }

  bool AllMembersOfOneGeneration() const {
    return std::all_of(processes_.begin(), processes_.end(), [&](const Process& p) {
      return p.is == Is::kGone || p.is == Is::kReady ||
             (p.is == Is::kMember && p.in == job_.plan().generation && !p.told);
    });
  }

  void Apply(const Job::Change& change) {
    for (const int slot : change.slots) {
      Process& process = processes_[slot];
      if (change.kind == Job::Kind::kForm) {
        EXPECT_EQ(process.is, Is::kReady);
        process.is = Is::kMember;
        process.in = job_.plan().generation;
      } else if (change.kind == Job::Kind::kStart) {
        EXPECT_EQ(process.is, Is::kGone);
        process.is = Is::kStarting;
      } else if (change.kind == Job::Kind::kKill) {
        EXPECT_EQ(process.is, Is::kMember);
        Fail(slot);
      } else if (change.kind != Job::Kind::kGiveUp) {
        EXPECT_EQ(process.is, Is::kMember);
        process.told = true;
      }
    }
    if (change.kind == Job::Kind::kForm) CheckMembers(change.slots);
  }

  void CheckMembers(const std::vector<int>& members) {
    EXPECT_LE(static_cast<int>(members.size()), ranks_);
    std::set<int> slots(members.begin(), members.end()), local_ranks;
    for (const int slot : members) local_ranks.insert(job_.plan().slots[slot].local_rank);
    EXPECT_EQ(slots.size(), members.size());
    EXPECT_EQ(local_ranks.size(), members.size());
    EXPECT_LT(*local_ranks.rbegin(), ranks_);
    for (const Process& process : processes_) {
      EXPECT_TRUE(process.is != Is::kMember || process.in == job_.plan().generation) << "two generations at once";
    }
  }

  std::mt19937 random_;
  double now_ = 0;
  const int ranks_, spares_;
  int64_t step_ = 0;
  Job job_;
  std::vector<Process> processes_;
};

TEST(Membership, SurvivesRandomLives) {
  int finished = 0;
  for (int seed = 0; seed < 1000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomLife life(seed);
    life.Run();
    finished += !life.over();
  }
  EXPECT_GT(finished, 500);
}

}  // namespace
}  // namespace lockstep::launch
