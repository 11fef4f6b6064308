// A Membership whose processes are only numbers, for tests of its decisions.

#ifndef LOCKSTEP_LAUNCH_JOB_TESTING_MEMBERSHIP_JOB_H_
#define LOCKSTEP_LAUNCH_JOB_TESTING_MEMBERSHIP_JOB_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/rank_plan.h"

namespace lockstep::launch::testing {

using State = RankPlan::State;

inline absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// A signal has killed a process, or a host.
inline Failure CauseOf(const std::string& text) {
  Failure cause;
  cause.status = absl::AbortedError(text);
  cause.killed = true;
  return cause;
}

// A Membership whose processes are only what agents say of them. An agent has a free port for each generation.
class MembershipJob {
 public:
  enum class Kind { kForm, kAfterStep, kNow, kGiveUp, kStart, kKill };
  struct Change {
    Kind kind;
    std::vector<int> slots;
    std::string reason;
  };

  MembershipJob(int ranks, int spares, const Membership::Limits& limits) : membership_(limits) {
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
    agent.phase = AgentState::Phase::kRunning;
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
    using Kind = MembershipJob::Kind;
    static const auto& names = *new std::map<Kind, std::string>{{Kind::kForm, "form"}, {Kind::kAfterStep, "after step"},
                                                                {Kind::kNow, "now"},   {Kind::kStart, "start"},
                                                                {Kind::kKill, "kill"}, {Kind::kGiveUp, "give up"}};
    std::vector<std::string> said;
    for (const MembershipJob::Change& change : job_->Take()) {
      said.push_back(absl::StrCat(names.at(change.kind), " ", absl::StrJoin(change.slots, " "),
                                  change.reason.empty() ? "" : ": ", change.reason));
    }
    return said;
  }

  const RankPlan& plan() const { return job_->plan(); }
  const absl::Status& verdict() const { return plan().verdict; }
  bool finished() const { return job_->membership().finished(); }
  std::string ending() const { return plan().ending.value_or(""); }

  std::optional<MembershipJob> job_;
};

}  // namespace lockstep::launch::testing

#endif  // LOCKSTEP_LAUNCH_JOB_TESTING_MEMBERSHIP_JOB_H_
