// Which schedules a training has.

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/elastic/simulator/internal/simulation.h"
#include "lockstep/launch/simulator/schedules.h"

namespace lockstep::elastic::internal {
namespace {

using launch::simulator::Death;
using launch::simulator::Schedule;

Schedule ScheduleOf(const Simulation::Config& config) {
  Schedule schedule;
  schedule.text = absl::StrCat("seed ", config.seed, ", ", config.ranks, " ranks");
  schedule.size = config.ranks;
  schedule.replaced = true;
  schedule.run = [config](const std::vector<Death>& deaths, bool trace) {
    Simulation::Config with_deaths = config;
    with_deaths.deaths = deaths;
    with_deaths.trace = trace;
    return Simulation(with_deaths).Run();
  };
  return schedule;
}

}  // namespace
}  // namespace lockstep::elastic::internal

namespace lockstep::launch::simulator {

using elastic::internal::ScheduleOf;
using elastic::internal::Simulation;

Schedule Level::Random(int64_t seed) {
  Simulation::Config config;
  config.seed = static_cast<uint64_t>(seed);
  config.ranks = static_cast<int>(2 + seed % 4);
  config.spares = seed / 4 % 3 == 0 ? 1 : 0;
  config.faults = static_cast<int>(seed / 12 % 8);
  config.max_ranks = seed / 96 % 3 == 0 ? 2 : 0;
  return ScheduleOf(config);
}

// Two deaths are in shorter trainings.
std::vector<Schedule> Level::Quiet(int size, int deaths) {
  Simulation::Config config;
  config.seed = static_cast<uint64_t>(size);
  config.ranks = size;
  config.steps = deaths == 1 ? 12 : 4;
  config.faults = 0;
  return {ScheduleOf(config)};
}

std::map<std::string, double> Level::LeastAtRandom() {
  return {{"generations", 2}, {"generations of 5 ranks", 0.1}, {"states healed", 0.25}, {"steps broken off", 1}};
}

// In the others a process dies before the first generation.
std::map<std::string, double> Level::LeastWithDeaths() { return {{"generations", 2}, {"success", 0.9}}; }

}  // namespace lockstep::launch::simulator
