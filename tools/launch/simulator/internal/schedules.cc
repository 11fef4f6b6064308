#include "lockstep/tools/launch/simulator/internal/schedules.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::launch::internal {
namespace {

constexpr size_t kMostViolations = 10;

std::string TextOf(const Simulation::Config& config) {
  return absl::StrCat(
      "seed ", config.seed, ", ", config.agents, " agents", config.leader_can_change ? ", etcd" : "",
      config.ranks_stay ? ", ranks stay" : "", config.stranger ? ", a launcher of another job" : "",
      config.max_ranks > 0 ? absl::StrCat(", ", config.max_ranks, " at most") : "",
      config.crash_event < 0 ? ""
                             : absl::StrCat(", agent ", config.crash_agent, " dies before event ", config.crash_event),
      config.second_crash_event < 0
          ? ""
          : absl::StrCat(", agent ", config.second_crash_agent, " before event ", config.second_crash_event));
}

}  // namespace

void Tally::Add(const Simulation::Config& config, const Simulation::Report& report) {
  ++schedules;
  events += report.events;
  messages += report.messages;
  generations += report.generations;
  rank_generations += report.rank_generations;
  states.insert(report.states.begin(), report.states.end());
  ++results[report.result];
  refused += report.refused;
  if (!report.violation.empty() && violations.size() < kMostViolations) {
    violations.push_back(absl::StrCat(TextOf(config), ": ", report.violation));
  }
}

std::string Tally::Text() const {
  std::string text =
      absl::StrCat(schedules, " schedules, ", events, " events, ", messages, " messages, ", generations,
                   " generations, ", rank_generations, " of ranks that stay, ", states.size(), " states\n");
  for (const auto& [result, count] : results) absl::StrAppend(&text, "  ", result, ": ", count, "\n");
  for (const std::string& violation : violations) absl::StrAppend(&text, violation, "\n");
  return text;
}

Tally RunRandom(int64_t first, int64_t schedules, bool until_violation, bool trace) {
  Tally tally;
  for (int64_t seed = first; seed < first + schedules; ++seed) {
    Simulation::Config config;
    config.seed = static_cast<uint64_t>(seed);
    config.agents = static_cast<int>(2 + seed % 4);
    config.leader_can_change = seed / 4 % 2 == 1;
    config.faults = static_cast<int>(seed / 8 % 9);
    config.ranks_stay = seed / 72 % 2 == 1;
    if (config.ranks_stay && seed / 144 % 3 == 0) config.max_ranks = static_cast<int>(1 + seed / 432 % 4);
    config.stranger = seed % 5 == 0;
    config.trace = trace;
    tally.Add(config, Simulation(config).Run());
    if (until_violation && !tally.violations.empty()) break;
  }
  return tally;
}

Tally CrashAtEveryEvent(int least, int most) {
  Tally tally;
  for (int agents = least; agents <= most; ++agents) {
    for (const int kind : {0, 1, 2, 3}) {
      for (int agent = 0; agent < agents; ++agent) {
        Simulation::Config config;
        config.agents = agents;
        config.leader_can_change = kind % 2 == 1;
        config.ranks_stay = kind >= 2;
        config.faults = 0;
        config.crash_agent = agent;
        for (Simulation::Report report; config.crash_event < report.events;) {
          ++config.crash_event;
          report = Simulation(config).Run();
          tally.Add(config, report);
        }
      }
    }
  }
  return tally;
}

Tally CrashAtEveryPair(int least, int most) {
  Tally tally;
  for (int agents = least; agents <= most; ++agents) {
    for (int pair = 0; pair < 2 * agents * agents; ++pair) {
      Simulation::Config config;
      config.agents = agents;
      config.leader_can_change = true;
      config.ranks_stay = pair >= agents * agents;
      config.faults = 0;
      config.crash_agent = pair / agents % agents;
      config.second_crash_agent = pair % agents;
      if (config.crash_agent == config.second_crash_agent) continue;
      const int64_t events = Simulation(config).Run().events;
      for (config.crash_event = 0; config.crash_event < events; ++config.crash_event) {
        for (config.second_crash_event = config.crash_event; config.second_crash_event < events;
             ++config.second_crash_event) {
          tally.Add(config, Simulation(config).Run());
        }
      }
    }
  }
  return tally;
}

std::string GrowthTable() {
  std::string table =
      "| Nodes | Messages a node to form | Time to form | Messages a node after a loss | Time after a loss |\n"
      "|---|---|---|---|---|\n";
  for (const int nodes : {4, 16, 64, 256, 1000}) {
    Simulation::Config config;
    config.agents = nodes;
    config.min_nodes = nodes - 1;
    config.faults = 0;
    config.delay_ms = 1;
    Simulation::Report whole = Simulation(config).Run();
    config.crash_agent = nodes - 1;
    config.crash_ms = whole.started_ms[1] + 1000;
    Simulation::Report report = Simulation(config).Run();
    const auto a_node = [nodes](int64_t messages) { return absl::StrFormat("%.1f", 1.0 * messages / nodes); };
    absl::StrAppend(&table, "| ", nodes, " | ", a_node(report.started_messages[1]), " | ",
                    report.started_ms[1] - report.last_join_ms, " ms | ",
                    a_node(report.started_messages[2] - report.started_messages[1]), " | ",
                    report.started_ms[2] - config.crash_ms, " ms |\n");
  }
  return table;
}

}  // namespace lockstep::launch::internal
