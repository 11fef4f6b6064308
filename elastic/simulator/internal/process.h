// The parts that the simulation's sources share: a process, a generation, and the times.

#ifndef LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_PROCESS_H_
#define LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_PROCESS_H_

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/elastic/internal/failure_budget.h"
#include "lockstep/elastic/internal/healing_plan.h"
#include "lockstep/elastic/internal/rank_steps.h"
#include "lockstep/elastic/internal/shard_plan.h"
#include "lockstep/elastic/simulator/internal/simulation.h"

namespace lockstep::elastic::internal {

inline constexpr int64_t kMs = 1000, kSecond = 1000 * kMs;
inline constexpr int64_t kHorizon = 600 * kSecond;  // nobody may still train then
inline constexpr int64_t kMostEvents = 50000;       // nor may so much happen
inline constexpr int64_t kFaultTime = 400 * kMs;    // within which faults happen
inline constexpr int64_t kLeaveTimeout = 2 * kSecond;
inline constexpr int64_t kHeadStart = 200 * kMs;
inline constexpr int64_t kWaitForAll = 30 * kSecond;  // of new processes, if no rank is left
inline constexpr int64_t kNotice = 15 * kMs;          // until ranks know of a death
inline constexpr int64_t kReport = 5 * kMs;           // until the launcher does
inline constexpr int kMostFailedStarts = 5;           // then a slot gets no process any more
inline constexpr int kFailuresPerCause = 3;
inline constexpr int64_t kFailureWindow = 4;  // steps
inline constexpr uint64_t kInitialState = 1;
inline constexpr size_t kParameters = 6;  // of a sharded optimizer
// The launcher ends a job after so many generations without a step, and says so.
inline constexpr int kMostBarren = 10;
inline constexpr char kNotStarted[] = "not started";  // a process failed before the first generation
inline constexpr char kBarren[] = "generations ended before they completed a step";

// The state after one more step. A state is a hash of the steps in their order, so a step shows that is missing, that
// was applied twice or in another order.
inline uint64_t Applied(uint64_t state, int64_t step) {
  return state * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step);
}

// How processes die.
inline constexpr char kKilled[] = "was killed by signal 9 (SIGKILL)";
inline constexpr const char* kHows[] = {kKilled, kKilled, "exited with code 3", "was killed by signal 11 (SIGSEGV)"};

inline constexpr char kDidNotLeave[] = "was killed by signal 9 (SIGKILL): it had not left generation 1 in time";

// Causes by which ranks fail themselves.
enum Cause : int { kSample, kLoss, kExit, kCrash, kStuck };

// A failure by itself that a rank has counted, as the auditor knows it.
struct CountedFailure {
  int kind = 0;  // failures of one kind have one cause
  int64_t step = 0;
};

struct Simulation::Process {
  int id = 0;  // no other process of the job has it
  int slot = 0;
  bool alive = true;
  int64_t stopped_until_us = 0;
  int64_t generation = 0;  // that it is in; 0: it waits for one, or starts
  int64_t left = 0;        // the last one that it was in
  GenerationFacts facts;   // as World has them
  RankSteps steps{kFailuresPerCause, kFailureWindow};
  std::optional<CheckPace> pace;
  bool waits = false;       // in Join()
  bool broken = false;      // it knows that its generation is
  std::string why;          // the same
  int64_t regroups_in = 0;  // the generation that it should leave after a step
  int64_t buffers = 0,
          kept_buffers = 0;    // steps that have changed the module's buffers, and the copies of the last commit
  std::optional<size_t> lost;  // a parameter whose optimizer's state no rank has
  // The steps in each parameter, and in its optimizer's state; kNoState: the process does not have it.
  std::vector<int64_t> parameters = std::vector<int64_t>(kParameters), shards = parameters;
  int initial = 0;  // the id of the process whose parameters the training began with
  uint64_t state = kInitialState;
  bool has_trained = false;
  size_t calls = 0;  // collectives of this generation that it has entered
  bool in_call = false;
  bool may_fail = true;     // by itself, once
  bool done = false;        // it has finished, and ends
  int64_t finished_in = 0;  // the same: in this generation
  std::string verdict;      // with which it ends the job

  // For the auditor: what the launcher has heard, and what is to be found in `steps`.
  bool was_first = false;             // it was in the first generation
  std::optional<int64_t> last_error;  // the commits at its last error
  bool is_ready = false, is_member = false;
  bool has_done = false;  // its work
  bool is_done = false;   // and has ended
  bool was_ready = false, is_given_up = false;
  int failed_starts = 0;             // processes of this slot in succession that failed before they were ready
  std::optional<int64_t> failed_us;  // the time at which the launcher heard of its failure
  bool failed_as_member = false;
  int64_t failed_in = 0;  // the same: the generation
  int64_t died_us = 0;
  bool killed = false;   // by somebody
  bool owes = false;     // a member failed in its slot, and no generation has formed since
  bool gave_up = false;  // its state, while it got one with steps
  int local_rank = -1;
  int64_t ready_at = 0;  // steps of the newest state when it got ready
  std::vector<CountedFailure> counted;
};

// The facts that ranks exchange in their collectives.
struct Simulation::Generation {
  struct Call {
    std::vector<int64_t> facts;  // by rank
    std::map<int, Then> entered;
  };

  // A rank's knowledge when it began to heal.
  struct Known {
    int initial = 0;
    std::vector<launch::StepFailure> failures;
    std::vector<CountedFailure> counted;
  };

  int64_t number = 0;
  std::string reason;
  std::optional<launch::StepFailure> failure;
  std::optional<std::string> left_with;  // the first error with which a member left the generation before
  std::vector<Process*> members;
  std::vector<Call> calls;
  Healing healing;
  std::vector<Keepers> keepers;
  std::map<int, Known> known;          // by rank
  std::string healed;                  // what a rank had then besides the steps
  std::vector<int64_t> leave_planned;  // the steps of ranks that leave as planned
  bool failed = false;                 // a member has died, or has left it because of a failure
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_PROCESS_H_
