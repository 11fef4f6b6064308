// Sets of schedules for the simulation, and what came out.

#ifndef LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_SCHEDULES_H_
#define LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_SCHEDULES_H_

#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/elastic/simulator/internal/simulation.h"

namespace lockstep::elastic::internal {

struct Tally {
  int64_t schedules = 0, events = 0, generations = 0, healed = 0, repeated = 0, most_ranks = 0;
  std::map<std::string, int64_t> results;  // how many trainings ended like this
  std::vector<std::string> violations;     // the first ten

  void Add(const Simulation::Config& config, const Simulation::Report& report);
  std::string Text() const;
};

// Schedules whose seeds are `first` and the following. The numbers of ranks, spares and faults, and max_ranks follow from
// the seed. With `until_violation` the first schedule that breaks a rule is the last one.
Tally RunRandom(int64_t first, int64_t schedules, bool until_violation = false, bool trace = false);

// Trainings on `least` to `most` ranks without other faults, in which one process dies before each event.
Tally DeathAtEveryEvent(int least, int most);

// Shorter ones, in which two processes die, or one and the one that takes its place, before each pair of events.
Tally DeathsAtEveryPair(int least, int most);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_SCHEDULES_H_
