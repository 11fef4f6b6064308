// Runs many schedules of a job of several nodes, and says which one broke a rule.
//
//   ./bazelw run //tools/launch/simulator:simulate -- --schedules=100000
//   ./bazelw run //tools/launch/simulator:simulate -- --first_seed=4711 --schedules=1 --trace

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/tools/launch/simulator/internal/schedules.h"

namespace {

namespace internal = lockstep::launch::internal;

constexpr char kUsage[] = R"(usage: simulate [FLAG]...

Runs schedules of the launcher's decisions in virtual time, and says which one broke a rule.

  --schedules=N      random ones, 100000 unless given
  --first_seed=N     of the first one, 1 unless given
  --crashes          instead, kills one agent before each event of a job of 2 to 5 agents
  --pairs            instead, kills two agents before each pair of events of a job of 2 and 3 agents
  --until_violation  stops at the first broken rule
  --growth           instead, a table of how messages and times grow with the number of nodes
  --trace            prints each event
)";

}  // namespace

int main(int argc, char** argv) {
  int64_t schedules = 100000, first = 1;
  bool crashes = false, pairs = false, until_violation = false, growth = false, trace = false;
  for (int i = 1; i < argc; ++i) {
    absl::string_view text = argv[i];
    if (absl::ConsumePrefix(&text, "--schedules=") && absl::SimpleAtoi(text, &schedules)) continue;
    if (absl::ConsumePrefix(&text, "--first_seed=") && absl::SimpleAtoi(text, &first)) continue;
    crashes |= text == "--crashes";
    pairs |= text == "--pairs";
    growth |= text == "--growth";
    trace |= text == "--trace";
    until_violation |= text == "--until_violation";
    if (text == "--crashes" || text == "--pairs" || text == "--growth" || text == "--trace" ||
        text == "--until_violation")
      continue;
    std::cerr << kUsage;
    return text == "--help" ? 0 : 2;
  }
  if (growth) {
    std::cout << internal::GrowthTable();
    return 0;
  }
  const internal::Tally tally = crashes ? internal::CrashAtEveryEvent(2, 5)
                                : pairs ? internal::CrashAtEveryPair(2, 3)
                                        : internal::RunRandom(first, schedules, until_violation, trace);
  std::cout << tally.Text();
  return tally.violations.empty() ? 0 : 1;
}
