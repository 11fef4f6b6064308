// Faults at the end of a short training: the last step is complete, or World::Run() has returned and the process exits.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_ENDINGS_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_ENDINGS_H_

#include <stdint.h>

#include <random>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/elastic/chaos/internal/job.h"
#include "lockstep/elastic/chaos/internal/step_watch.h"

namespace lockstep::elastic::chaos::internal {

enum class EndingKind {
  kKillAfterLastStep,  // SIGKILL, while the ranks agree that they have done their work, or soon after
  kKillInExit,         // SIGKILL, when World::Run() has returned
  kCrashInExit,        // SIGSEGV
  kSlowExit,           // SIGSTOP, and SIGCONT some seconds later
};

struct Ending {
  EndingKind kind = EndingKind::kKillAfterLastStep;
  int slot = 0;          // of the process that it hits
  absl::Duration delay;  // after the last step, or after the return of World::Run()
  absl::Duration pause;  // kSlowExit
};

// Ending `number`, from 0, of a job with so many slots. The same seed gives the same ones. Each kind comes in turn.
Ending NextEnding(int64_t number, int slots, std::mt19937_64* random);

// Such as "SIGKILL in the exit of slot 2 after 12ms".
std::string EndingText(const Ending& ending);

// Hurts a job that ends after `last` steps, and waits for its end. Returns whether the process still ran then. Errors:
// the job ends with another exit code than it should, a step is missing or was begun again, or a launcher does not end.
absl::StatusOr<bool> DisturbEnding(const Ending& ending, int64_t last, Job* job, StepWatch* watch);

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_ENDINGS_H_
