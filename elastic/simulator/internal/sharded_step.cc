// A step with a sharded optimizer, as elastic::World and its Shards have it.

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/shard_plan.h"
#include "lockstep/elastic/simulator/internal/process.h"
#include "lockstep/elastic/simulator/internal/simulation.h"

namespace lockstep::elastic::internal {
namespace {

const std::vector<int64_t>& Sizes() {
  static const auto* const sizes = new std::vector<int64_t>{7, 5, 3, 2, 2, 1};
  return *sizes;
}

// The ranks whose fact has the bit of each parameter.
std::vector<std::vector<int>> RanksIn(const std::vector<int64_t>& facts) {
  std::vector<std::vector<int>> ranks(kParameters);
  for (size_t p = 0; p < kParameters; ++p) {
    for (size_t rank = 0; rank < facts.size(); ++rank) {
      if ((facts[rank] >> p & 1) != 0) ranks[p].push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

// The first parameter that no rank has.
std::optional<size_t> LostOf(const std::vector<std::vector<int>>& have) {
  const auto lost = absl::c_find_if(have, [](const std::vector<int>& ranks) { return ranks.empty(); });
  if (lost == have.end()) return std::nullopt;
  return lost - have.begin();
}

}  // namespace

// The state on which all ranks have agreed at the start counts as a step.
int64_t Simulation::ProgressOf(const Process& process) const {
  if (!shards_ || process.commits == kNoState) return process.commits;
  return process.divided ? process.commits + 1 : 0;
}

int64_t Simulation::StepsOf(int64_t progress) const { return shards_ && progress > 0 ? progress - 1 : progress; }

// It has the gradients.
void Simulation::Ready(Process* process) {
  if (process->lost) return LoseShard(process, *process->lost);
  process->part = StepPart::kGradients;
  Enter(process, 0, [this, process] {
    StepShards(process);
    Enter(process, 0, [this, process] { ShareParameters(process); });
  });
}

void Simulation::StepShards(Process* process) {
  process->part = StepPart::kOwnShards;
  process->state = Applied(process->state, process->commits + 1);
  for (size_t p = 0; p < kParameters; ++p) {
    if (process->shards[p] == kNoState) continue;
    ++process->shards[p];
    ++process->parameters[p];
  }
}

void Simulation::ShareParameters(Process* process) {
  const Generation& generation = In(*process);
  for (size_t p = 0; p < kParameters; ++p) {
    process->parameters[p] = generation.members[generation.keepers[p].owner]->parameters[p];
  }
  Commit(process);
}

// No rank has this parameter, or its optimizer's state. All ranks end.
void Simulation::LoseShard(Process* process, size_t p) {
  if (config_.faults == 0 && config_.deaths.size() < 2)
    Violation(absl::StrCat("one process has died, and the optimizer's state of parameter ", p, " is lost"));
  for (const auto& other : processes_) {
    if (other->alive && !other->done && other->divided && other->commits != kNoState && other->shards[p] != kNoState &&
        other->has_trained)
      Violation(absl::StrCat("the optimizer's state of parameter ", p, " is lost, but slot ", other->slot, " has it"));
  }
  Die(process, "exited with code 1");
}

// All ranks that took part in the step get the parameters of the others.
void Simulation::Spread(Process* process) {
  const auto have = RanksIn(In(*process).calls[process->calls - 1].facts);
  if (const auto lost = LostOf(have)) return LoseShard(process, *lost);
  In(*process).known[process->rank] = {process->initial, process->failures.failures(), process->counted};
  Enter(process, 0, [this, process, have] {
    const Generation& generation = In(*process);
    const Generation::Known& known = generation.known.at(generation.healing.sources[0]);
    process->failures.Restore(known.failures);
    process->counted = known.counted;
    const bool receives = absl::c_linear_search(generation.healing.receivers, process->rank);
    for (size_t p = 0; p < kParameters && !receives; ++p) {
      process->parameters[p] = generation.members[have[p][0]]->parameters[p];
    }
    if (process->part != StepPart::kNothing) CountStep(process);
    HealState(process);
  });
}

void Simulation::Divide(Process* process) {
  if (In(*process).healing.newest == 0) process->shards.assign(kParameters, 0);
  process->divided = true;
  int64_t has = 0;
  for (size_t p = 0; p < kParameters; ++p) {
    if (process->shards[p] != kNoState) has |= int64_t{1} << p;
  }
  Enter(process, has, [this, process] {
    Generation& generation = In(*process);
    const auto have = RanksIn(generation.calls[process->calls - 1].facts);
    process->lost = LostOf(have);
    if (process->lost) return Trust(process);  // there may be no other step
    generation.keepers = PlanShards(Sizes(), have, std::vector<int>(generation.members.size()));
    Enter(process, 0, [this, process, have] {
      const Generation& group = In(*process);
      for (size_t p = 0; p < kParameters; ++p) {
        const Keepers& keepers = group.keepers[p];
        const bool keeps = keepers.owner == process->rank || keepers.second == process->rank;
        if (keeps) process->shards[p] = group.members[have[p][0]]->shards[p];
      }
      Enter(process, 0, [this, process] { Drop(process); });
    });
  });
}

// All ranks have what they must keep.
void Simulation::Drop(Process* process) {
  for (size_t p = 0; p < kParameters; ++p) {
    const Keepers& keepers = In(*process).keepers[p];
    if (keepers.owner != process->rank && keepers.second != process->rank) process->shards[p] = kNoState;
  }
  Trust(process);
}

}  // namespace lockstep::elastic::internal
