// Sets of schedules for the simulator that is linked, and what came out.
//
//   const Tally tally = RunRandom(/*first=*/1, /*schedules=*/100000);
//   std::cout << tally.Text();

#ifndef LOCKSTEP_LAUNCH_SIMULATOR_SCHEDULES_H_
#define LOCKSTEP_LAUNCH_SIMULATOR_SCHEDULES_H_

#include <stdint.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "lockstep/launch/simulator/engine.h"

namespace lockstep::launch::simulator {

struct Schedule {
  std::string text;       // its seed, and what else there is to it
  int size = 0;           // how many nodes or processes may die
  bool replaced = false;  // who has died has a successor, which may die too
  std::function<Report(const std::vector<Death>& deaths, bool trace)> run;
};

// The simulator that is linked. Its own library defines this.
struct Level {
  static Schedule Random(int64_t seed);
  // Jobs in which nothing goes wrong but so many deaths.
  static std::vector<Schedule> Quiet(int size, int deaths);
  // How often something is counted at least in a random schedule, and in one with a death, on average. A rule is only
  // worth something if schedules get where it counts.
  static std::map<std::string, double> LeastAtRandom();
  static std::map<std::string, double> LeastWithDeaths();
};

struct Tally {
  int64_t schedules = 0, events = 0;
  std::map<std::string, int64_t> counts, results;  // of all, and how many ended like this
  absl::flat_hash_set<uint64_t> states;
  std::vector<std::string> violations;  // the first ten

  void Run(const Schedule& schedule, const std::vector<Death>& deaths = {}, bool trace = false);
  std::string Text() const;
};

// Schedules whose seeds are `first` and the following. With `until_violation` the first one that breaks a rule is the
// last.
Tally RunRandom(int64_t first, int64_t schedules, bool until_violation = false, bool trace = false);

// Jobs of `least` to `most` nodes or ranks, in which one dies before each event.
Tally DeathAtEveryEvent(int least, int most);

// Runs such jobs with two deaths, before each pair of events.
Tally DeathsAtEveryPair(int least, int most);

}  // namespace lockstep::launch::simulator

#endif  // LOCKSTEP_LAUNCH_SIMULATOR_SCHEDULES_H_
