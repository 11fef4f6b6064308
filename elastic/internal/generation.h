// A generation of ranks, from one rank's view: its process group, and what has happened in it.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_GENERATION_H_
#define LOCKSTEP_ELASTIC_INTERNAL_GENERATION_H_

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/link_watcher.h"
#include "lockstep/elastic/internal/parameter_check.h"
#include "lockstep/elastic/internal/rank_steps.h"
#include "lockstep/launch/link/agent_link.h"

namespace lockstep::elastic::internal {

// A generation begins when this rank has joined it, and ends with the object. Not thread-safe.
//
//   Generation generation(link, *link->Join(), group_options);
//   LOCKSTEP_RETURN_IF_ERROR(generation.Meet(progress, kept));
//   // ... heal according to generation.healing() ...
//   generation.BeginTraining(kept, commits, /*watches_gradients=*/false);
class Generation {
 public:
  // `link` may be null, and must outlive the object. `place` is this rank's, and options.environment says the same to
  // the group.
  Generation(launch::AgentLink* link, const launch::RankGeneration& place, comm::InitOptions options);

  // Forms the group, and agrees with the other ranks on healing(). Every rank calls it once. Errors: as of
  // FormGroup() and AgreeOnHealing(), and ResourceExhausted: no thread is free. Then there may be no group.
  absl::Status Meet(const Progress& progress, const KeptState& kept);

  // After Meet().
  comm::ProcessGroup& group() { return *group_; }
  const Healing& healing() const { return healing_; }

  // `train` is about to be called, with this number of commits. `watches_gradients`: until the first commit.
  void BeginTraining(const KeptState& kept, int64_t commits, bool watches_gradients);
  CheckPace& pace() { return *pace_; }
  const std::vector<c10::Device>& gpus() const { return gpus_; }  // the GPUs that have parameters

  // The gradient that this rank has made, and that is not finite; "" if there is none, or nobody looks.
  std::string NonFiniteGradient() const { return gradients_ ? gradients_->found() : ""; }
  void StopWatchingGradients() { gradients_.reset(); }

  // Returns whether the ranks should regroup after a step: a process is ready, or a node leaves.
  bool RegroupsAfterStep() const { return watcher_ && watcher_->regroups_after_step(); }

  // Returns whether `status`, an error of this generation, came from another rank or the launcher. May wait for 2 s.
  bool OthersFailed(const absl::Status& status) const;

  // The addresses of hosts that have not answered. Call it while connections are open.
  std::vector<std::string> TakeSilentHosts() const;

  // Ends calls of all ranks, if there is a group.
  void Abort(const absl::Status& status);

  // Stops listening to the launcher, so that the link may Join() the next generation. The group is null if the ranks
  // have not met.
  std::unique_ptr<comm::ProcessGroup> Leave();

  // All that has happened so far. RankSteps decides by it.
  GenerationFacts facts;

 private:
  launch::AgentLink* const link_;
  const bool has_other_hosts_;
  comm::InitOptions options_;  // of the group
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<LinkWatcher> watcher_;  // aborts group_, so it ends first
  Healing healing_;
  std::optional<CheckPace> pace_;
  std::vector<c10::Device> gpus_;
  std::unique_ptr<GradientWatch> gradients_;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_GENERATION_H_
