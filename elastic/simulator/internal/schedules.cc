#include "lockstep/elastic/simulator/internal/schedules.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace lockstep::elastic::internal {
namespace {

constexpr size_t kMostViolations = 10;

std::string TextOf(const Simulation::Config& config) {
  std::string text = absl::StrCat("seed ", config.seed, ", ", config.ranks, " ranks");
  for (const Simulation::Death& death : config.deaths) {
    absl::StrAppend(&text, ", slot ", death.slot, " dies before event ", death.event);
  }
  return text;
}

// In which nothing goes wrong.
Simulation::Config QuietConfig(int ranks, int64_t steps) {
  Simulation::Config config;
  config.seed = static_cast<uint64_t>(ranks);
  config.ranks = ranks;
  config.steps = steps;
  config.faults = 0;
  return config;
}

}  // namespace

void Tally::Add(const Simulation::Config& config, const Simulation::Report& report) {
  ++schedules;
  events += report.events;
  generations += report.generations;
  healed += report.healed;
  repeated += report.repeated;
  most_ranks = std::max(most_ranks, report.most_ranks);
  ++results[report.violation.empty() ? report.result : "a broken rule"];
  if (!report.violation.empty() && violations.size() < kMostViolations) {
    violations.push_back(absl::StrCat(TextOf(config), ": ", report.violation));
  }
}

std::string Tally::Text() const {
  std::string text = absl::StrCat(schedules, " schedules, ", events, " events, ", generations, " generations, ", healed,
                                  " states healed, ", repeated, " steps broken off\n");
  for (const auto& [result, count] : results) absl::StrAppend(&text, "  ", result, ": ", count, "\n");
  for (const std::string& violation : violations) absl::StrAppend(&text, violation, "\n");
  return text;
}

Tally RunRandom(int64_t first, int64_t schedules, bool until_violation, bool trace) {
  Tally tally;
  for (int64_t seed = first; seed < first + schedules; ++seed) {
    Simulation::Config config;
    config.seed = static_cast<uint64_t>(seed);
    config.ranks = static_cast<int>(2 + seed % 4);
    config.spares = seed / 4 % 3 == 0 ? 1 : 0;
    config.faults = static_cast<int>(seed / 12 % 8);
    config.max_ranks = seed / 96 % 3 == 0 ? 2 : 0;
    config.trace = trace;
    tally.Add(config, Simulation(config).Run());
    if (until_violation && !tally.violations.empty()) break;
  }
  return tally;
}

Tally DeathAtEveryEvent(int least, int most) {
  constexpr int64_t kSteps = 12;
  Tally tally;
  for (int ranks = least; ranks <= most; ++ranks) {
    Simulation::Config config = QuietConfig(ranks, kSteps);
    const int64_t events = Simulation(config).Run().events;
    for (int64_t event = 0; event < events; ++event) {
      for (int slot = 0; slot < ranks; ++slot) {
        config.deaths = {{slot, event}};
        tally.Add(config, Simulation(config).Run());
      }
    }
  }
  return tally;
}

Tally DeathsAtEveryPair(int least, int most) {
  constexpr int64_t kSteps = 4;
  Tally tally;
  for (int ranks = least; ranks <= most; ++ranks) {
    Simulation::Config config = QuietConfig(ranks, kSteps);
    const int64_t events = Simulation(config).Run().events;
    for (int64_t first = 0; first < events; ++first) {
      // After a death there are more events.
      for (int64_t second = first; second < first + 2 * events; ++second) {
        for (int slots = 0; slots < ranks * ranks; ++slots) {
          config.deaths = {{slots / ranks, first}, {slots % ranks, second}};
          tally.Add(config, Simulation(config).Run());
        }
      }
    }
  }
  return tally;
}

}  // namespace lockstep::elastic::internal
