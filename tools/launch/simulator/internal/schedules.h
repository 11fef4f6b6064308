// Sets of schedules for the simulation, and what came out.

#ifndef LOCKSTEP_TOOLS_LAUNCH_SIMULATOR_INTERNAL_SCHEDULES_H_
#define LOCKSTEP_TOOLS_LAUNCH_SIMULATOR_INTERNAL_SCHEDULES_H_

#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "lockstep/tools/launch/simulator/internal/simulation.h"

namespace lockstep::launch::internal {

struct Tally {
  int64_t schedules = 0, events = 0, messages = 0, generations = 0, rank_generations = 0;
  int64_t refused = 0;  // launchers of another job
  absl::flat_hash_set<uint64_t> states;
  std::map<std::string, int64_t> results;  // how many jobs ended like this
  std::vector<std::string> violations;     // the first ten

  void Add(const Simulation::Config& config, const Simulation::Report& report);
  std::string Text() const;
};

// Schedules whose seeds are `first` and the following. The number of agents and of faults, whether the leader can
// change, and whether ranks stay when another one fails, follow from the seed.
// With `until_violation` the first schedule that breaks a rule is the last one.
Tally RunRandom(int64_t first, int64_t schedules, bool until_violation = false, bool trace = false);

// Jobs without other faults, of `least` to `most` agents, in which one agent dies before each event.
Tally CrashAtEveryEvent(int least, int most);

// The same with two agents that die, before each pair of events.
Tally CrashAtEveryPair(int least, int most);

// How messages and times grow with the number of nodes: a job forms, and then one node dies. A Markdown table.
std::string GrowthTable();

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_SIMULATOR_INTERNAL_SCHEDULES_H_
