// Runs many schedules of the simulator that is linked, and says which one broke a rule.

#include <gflags/gflags.h>

#include <iostream>

#include "lockstep/base/command_line.h"
#include "lockstep/launch/simulator/schedules.h"

DEFINE_int64(schedules, 100000, "random schedules");
DEFINE_int64(first_seed, 1, "of the first of them");
DEFINE_bool(deaths, false, "instead, one node or process dies before each event of a job of 2 to 5");
DEFINE_bool(pairs, false, "instead, two die before each pair of events of a job of 2 and 3");
DEFINE_bool(until_violation, false, "stops at the first random schedule that breaks a rule");
DEFINE_bool(trace, false, "prints what happens in random schedules");

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Runs schedules of decisions in virtual time, and says which one broke a rule.
The exit code is then 1.

  simulate --schedules=10000000
  simulate --first_seed=4711 --schedules=1 --trace
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  namespace simulator = lockstep::launch::simulator;
  const simulator::Tally tally =
      FLAGS_deaths  ? simulator::DeathAtEveryEvent(2, 5)
      : FLAGS_pairs ? simulator::DeathsAtEveryPair(2, 3)
                    : simulator::RunRandom(FLAGS_first_seed, FLAGS_schedules, FLAGS_until_violation, FLAGS_trace);
  std::cout << tally.Text();
  return tally.violations.empty() ? 0 : 1;
}
