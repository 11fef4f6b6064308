// Decides what a rank does next: it repeats the step that was under way, completes it, or ends. Pure.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_RANK_STEPS_H_
#define LOCKSTEP_ELASTIC_INTERNAL_RANK_STEPS_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::elastic::internal {

// A rank's knowledge of the generation that it is in. A new generation has new facts.
struct GenerationFacts {
  int64_t number = 0;
  int rank = 0;
  int world_size = 1;
  bool trains = false;    // `train` has been called
  bool regroups = false;  // the ranks have agreed to regroup between two steps
  bool is_final = false;  // an error of this generation ends the rank
  // The rank that made an error which all ranks have got; -1: all of them made it, or nobody knows who. nullopt: no
  // rank made one.
  std::optional<int> culprit = {};
  // The error with which the generation ends, if the ranks have agreed on it (comm/agreement): its rank and its own
  // words.
  std::optional<launch::StepFailure> heard = {};
};

// How a rank leaves a generation.
struct Departure {
  enum class Kind {
    kJoin,    // it joins the next one
    kEnd,     // World::Run() returns
    kEndJob,  // World::Run() returns, and the launcher ends all ranks
  };
  Kind kind = Kind::kEnd;
  std::string reason;       // for people; "": the ranks leave as planned, or the status says it
  bool takes_back = false;  // buffers and variables return to their values at the last commit
  // The training has failed so, on this rank or on all of them. The rank aborts the group with `reason`, so that the
  // others stop their step, and tells the launcher.
  std::optional<launch::StepFailure> failure;
};

// A rank's decision if its sharded step waited in Commit() for the others, once the ranks that are left have met.
enum class StepUnderWay {
  kNone,      // it has none that others may have applied
  kApply,     // another rank has applied it
  kTakeBack,  // no rank has applied it
};

// The steps and failures of a rank, from its first generation to its last.
//
//   RankSteps steps(3, 10);
//   steps.OnJoin(facts, failure_before);
//   const Departure departure = steps.OnEnd(facts, status, others_failed);
class RankSteps {
 public:
  // The limits are FailureBudget's. A rank that makes a second error within `failure_window` steps ends.
  RankSteps(int failures_per_cause, int64_t failure_window)
      : window_(failure_window), failures_(failures_per_cause, failure_window) {}

  // The optimizer is sharded. The states of its ranks cannot be compared, so the state on which all ranks have agreed
  // at the start counts as a step.
  void Shard() { sharded_ = true; }

  // The next step is number `step`.
  void BeginAt(int64_t step) { first_step_ = step; }

  int64_t commits() const { return commits_; }  // the steps in this rank's state, or kNoState
  int64_t first_step() const { return first_step_; }
  int64_t step() const;                         // the number of the step that begins
  StepPart part() const { return part_; }       // how much of it is done
  bool is_divided() const { return divided_; }  // all ranks had one state, which the shards are parts of
  Progress progress(int node) const;            // as PlanHealing() counts it
  int64_t CommitsIn(int64_t progress) const;    // the steps in a state of this progress
  const FailureBudget& failures() const { return failures_; }
  bool IsRepeated() const;  // the step that begins has failed before

  // A rank's history is a part of the state, so a rank that gets the state gets it too.
  void Restore(int64_t first_step, std::vector<launch::StepFailure> failures);

  // The rank is in a generation, since the one before ended with this failure. All ranks get the same one.
  void OnJoin(const GenerationFacts& facts, std::optional<launch::StepFailure> failure);

  // The ranks have met and agreed on `healing`, while this one is in Commit() with gradients. After kApply, call
  // OnOwnShards() when it is done.
  StepUnderWay OnMetInCommit(const Healing& healing);

  // The rank heals. The result is whether it has all parameters of the step that the ranks complete.
  bool HasAllParameters(const Healing& healing, int rank) const;

  // Returns whether the new state may overwrite this rank's own one piece by piece, which then does not count any more.
  bool HealsInPlace(const Healing& healing, int rank);
  void GiveUpState() { commits_ = kNoState; }
  void OnHealed(const Healing& healing);
  void OnDivided() { divided_ = true; }

  // The parts of a step.
  void OnGradients() { part_ = StepPart::kGradients; }
  void OnOwnShards() { part_ = StepPart::kOwnShards; }
  void OnCommit();

  // Returns whether OnEnd() has to know if another rank has failed. That may take time.
  bool NeedsCause(const GenerationFacts& facts, const absl::Status& status) const;

  // The generation has ended for this rank with `status`. `others_failed`: another rank has failed, or the launcher has
  // said so; only if NeedsCause().
  Departure OnEnd(const GenerationFacts& facts, const absl::Status& status, bool others_failed);

 private:
  bool Begins() const;
  bool HasFailedBefore(const GenerationFacts& facts, int culprit);

  const int64_t window_;
  FailureBudget failures_;
  bool sharded_ = false, divided_ = false;
  int64_t commits_ = 0, first_step_ = 0;
  StepPart part_ = StepPart::kNothing;
  bool was_first_ = false;            // this rank was in the first generation
  std::optional<int64_t> own_error_;  // commits_ at the last error that this rank made
};

// When the ranks of a generation ask each other whether to regroup: after the same steps, at about equal intervals.
class CheckPace {
 public:
  CheckPace(int64_t commits, absl::Time now) : next_(commits + 1), last_(commits), last_time_(now) {}

  bool IsDue(int64_t commits) const { return commits >= next_; }

  // The steps until the next check but one, so that checks are about `interval` apart: from 1 to 1000.
  int64_t Pause(int64_t commits, absl::Duration interval, absl::Time now) const;

  // The ranks have agreed on rank 0's `pause`.
  void OnCheck(int64_t commits, int64_t pause, absl::Time now);

 private:
  int64_t next_, last_;
  absl::Time last_time_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_RANK_STEPS_H_
