// A step with a sharded optimizer, as elastic::World and its Shards have it.

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/rank_steps.h"
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

// Has a bit for each parameter whose optimizer's state the process has.
int64_t Simulation::ShardsOf(const Process& process) const {
  int64_t has = 0;
  for (size_t p = 0; p < kParameters; ++p) has |= int64_t{process.shards[p] != kNoState} << p;
  return has;
}

// It has the gradients.
void Simulation::Ready(Process* process) {
  if (process->lost) return LoseShard(process, *process->lost);
  process->steps.OnGradients();
  Enter(process, 0, [this, process] {
    StepShards(process);
    Enter(process, 0, [this, process] { ShareParameters(process); });
  });
}

void Simulation::StepShards(Process* process) {
  process->steps.OnOwnShards();
  process->state = Applied(process->state, process->steps.commits() + 1);
  for (size_t p = 0; p < kParameters; ++p) {
    if (process->shards[p] == kNoState) continue;
    ++process->shards[p];
    ++process->parameters[p];
  }
}

void Simulation::ShareParameters(Process* process) {
  if (pieces_) {
    Publish(process, process->steps.commits() + 1);
    return Commit(process);
  }
  const Generation& generation = In(*process);
  for (size_t p = 0; p < kParameters; ++p) {
    process->parameters[p] = generation.members[generation.keepers[p].owner]->parameters[p];
  }
  Commit(process);
}

// All ranks read what each owner has. An owner that has died meanwhile has published it, or the barrier has failed.
void Simulation::Publish(Process* process, int64_t steps) {
  const Generation& generation = In(*process);
  for (size_t p = 0; p < kParameters; ++p) {
    const Process& owner = *generation.members[generation.keepers[p].owner];
    if (owner.alive && owner.generation == generation.number && owner.parameters[p] != steps)
      Violation(absl::StrCat("slot ", owner.slot, " publishes parameter ", p, " of ", owner.parameters[p],
                             " steps, expected ", steps));
  }
}

// No rank has this parameter, or its optimizer's state. All ranks end.
void Simulation::LoseShard(Process* process, size_t p) {
  AuditLostShard(p);
  process->facts.is_final = true;
  Leave(process, absl::DataLossError("the optimizer's state is lost"));
}

// All ranks that took part in the step get the parameters of the others.
void Simulation::Spread(Process* process) {
  const auto have = RanksIn(FactsOf(*process));
  if (const auto lost = LostOf(have)) return LoseShard(process, *lost);
  Remember(process);
  Enter(process, 0, [this, process, have] {
    const Generation& generation = In(*process);
    TakeFailures(process, generation.healing.sources[0]);
    for (size_t p = 0; p < kParameters && !pieces_ && !generation.healing.IsReceiver(process->facts.rank); ++p) {
      process->parameters[p] = generation.members[have[p][0]]->parameters[p];
    }
    if (process->steps.part() != StepPart::kNothing) CountStep(process);
    HealState(process);
  });
}

void Simulation::Divide(Process* process) {
  if (In(*process).healing.newest == 0) {
    process->shards.assign(kParameters, 0);
    process->parameters.assign(kParameters, 0);
  }
  process->steps.OnDivided();
  Enter(process, ShardsOf(*process), [this, process] {
    Generation& generation = In(*process);
    const auto have = RanksIn(FactsOf(*process));
    process->lost = LostOf(have);
    if (process->lost && pieces_) return LoseShard(process, *process->lost);
    if (process->lost) return Trust(process);  // there may be no other step
    generation.keepers = PlanShards(Sizes(), have, std::vector<int>(generation.members.size()));
    const auto keeps = [this, process](size_t p) { return In(*process).keepers[p].Has(process->facts.rank); };
    Enter(process, 0, [this, process, have, keeps] {
      for (size_t p = 0; p < kParameters; ++p) {
        if (!keeps(p)) continue;
        const Process& source = *In(*process).members[have[p][0]];
        process->shards[p] = source.shards[p];
        if (pieces_) process->parameters[p] = source.parameters[p];
      }
      // All ranks have what they must keep.
      Enter(process, 0, [this, process, keeps] {
        for (size_t p = 0; p < kParameters; ++p) {
          if (keeps(p)) continue;
          process->shards[p] = kNoState;
          if (pieces_) process->parameters[p] = kNoState;
        }
        if (pieces_) Publish(process, process->steps.commits());
        Trust(process);
      });
    });
  });
}

}  // namespace lockstep::elastic::internal
