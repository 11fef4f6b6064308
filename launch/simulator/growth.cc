// Prints a Markdown table: how messages and times grow with the number of nodes. A job forms, and then one node dies.

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/launch/simulator/simulation.h"

namespace {

using lockstep::launch::Simulation;

Simulation::Growth GrowthOf(const Simulation::Config& config) {
  Simulation simulation(config);
  simulation.Run();
  return simulation.growth();
}

std::string RowOf(int nodes) {
  Simulation::Config config;
  config.agents = nodes;
  config.min_nodes = nodes - 1;
  config.faults = 0;
  config.delay_ms = 1;
  config.crash_ms = GrowthOf(config).started_ms[1] + 1000;
  Simulation::Growth growth = GrowthOf(config);
  const auto a_node = [nodes](int64_t messages) { return absl::StrFormat("%.1f", 1.0 * messages / nodes); };
  return absl::StrCat("| ", nodes, " | ", a_node(growth.started_messages[1]), " | ",
                      growth.started_ms[1] - growth.last_join_ms, " ms | ",
                      a_node(growth.started_messages[2] - growth.started_messages[1]), " | ",
                      growth.started_ms[2] - config.crash_ms, " ms |\n");
}

}  // namespace

int main() {
  std::cout << "| Nodes | Messages a node to form | Time to form | Messages a node after a loss | Time after a loss |\n"
               "|---|---|---|---|---|\n";
  for (const int nodes : {4, 16, 64, 256, 1000}) std::cout << RowOf(nodes);
}
