// Which schedules a job of several nodes has.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/launch/simulator/schedules.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch::simulator {
namespace {

Schedule ScheduleOf(const Simulation::Config& config) {
  Schedule schedule;
  schedule.text = absl::StrCat("seed ", config.seed, ", ", config.agents, " agents",
                               config.leader_can_change ? ", etcd" : "", config.ranks_stay ? ", ranks stay" : "",
                               config.stranger ? ", a launcher of another job" : "", config.cuts ? ", cuts" : "",
                               config.max_ranks > 0 ? absl::StrCat(", ", config.max_ranks, " at most") : "");
  schedule.size = config.agents;
  schedule.run = [config](const std::vector<Death>& deaths, bool trace) {
    Simulation::Config with_deaths = config;
    with_deaths.deaths = deaths;
    with_deaths.trace = trace;
    return Simulation(with_deaths).Run();
  };
  return schedule;
}

}  // namespace

Schedule Level::Random(int64_t seed) {
  Simulation::Config config;
  config.seed = static_cast<uint64_t>(seed);
  config.agents = static_cast<int>(2 + seed % 4);
  config.leader_can_change = seed / 4 % 2 == 1;
  config.faults = static_cast<int>(seed / 8 % 9);
  config.ranks_stay = seed / 72 % 2 == 1;
  if (config.ranks_stay && seed / 144 % 3 == 0) config.max_ranks = static_cast<int>(1 + seed / 432 % 4);
  config.stranger = seed % 5 == 0;
  config.cuts = config.ranks_stay && seed % 7 == 3;
  return ScheduleOf(config);
}

std::vector<Schedule> Level::Quiet(int size, int deaths) {
  std::vector<Schedule> schedules;
  for (const bool ranks_stay : {false, true}) {
    for (const bool leader_can_change : {false, true}) {
      Simulation::Config config;
      config.agents = size;
      config.leader_can_change = leader_can_change;
      config.ranks_stay = ranks_stay;
      config.faults = 0;
      if (deaths == 1 || leader_can_change) schedules.push_back(ScheduleOf(config));
    }
  }
  return schedules;
}

std::map<std::string, double> Level::LeastAtRandom() {
  return {{"generations", 1}, {"states", 1},          {"launchers refused", 0.1}, {"OK", 0.001},
          {"UNKNOWN", 0.001}, {"UNAVAILABLE", 0.001}, {"CANCELLED", 0.001},       {"DEADLINE_EXCEEDED", 0.001}};
}

std::map<std::string, double> Level::LeastWithDeaths() { return {{"generations", 1}}; }

}  // namespace lockstep::launch::simulator
