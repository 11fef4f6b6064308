// Decides when a failure that comes again and again ends the job. Knows neither processes nor a clock.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_FAILURE_BUDGET_H_
#define LOCKSTEP_ELASTIC_INTERNAL_FAILURE_BUDGET_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lockstep::elastic::internal {

struct Failure {
  int64_t step = -1;  // the one that was under way; -1: unknown
  int rank = 0;       // in its generation; -1: all ranks made it, or nobody knows which one
  std::string cause;  // "sample 240 is broken", "exited with code 3"
};

// A cause is the same one if it differs only in numbers: ranks, steps, addresses.
//
//   FailureBudget budget(3, 10);
//   budget.Add(failure);
//   if (const std::optional<std::string> verdict = budget.Verdict()) EndTheJob(*verdict);
class FailureBudget {
 public:
  // The job ends with the `most`th failure by one cause within `window` steps. `most` = 0: never.
  FailureBudget(int most, int64_t window) : most_(most), window_(window) {}

  void Add(const Failure& failure);

  // Why the last failure ends the job, in a sentence, or nullopt.
  std::optional<std::string> Verdict() const;

  // The failures that still count, for a rank that was not there.
  const std::vector<Failure>& failures() const { return failures_; }
  void Restore(std::vector<Failure> failures) { failures_ = std::move(failures); }

 private:
  const int most_;
  const int64_t window_;
  std::vector<Failure> failures_;  // in the order of their steps
};

// For the launcher, which tells it to all ranks as the reason of the next generation: "error of rank 0 in step 30: sample
// 240 is broken".
std::string ErrorText(const Failure& failure);

// The failure in an error that all ranks have got from one of them, as from comm::Agree(): "rank 0 (host a, pid 123):
// no space left". Without its step. nullopt for another text.
std::optional<Failure> HeardFailure(absl::string_view message);

// The failure in the launcher's reason for a generation: a text that contains an ErrorText(), or begins with "rank 2
// (local rank 2, pid 4711) exited with code 3", perhaps after "host a: ". A rank that the launcher has killed because
// it was stuck counts. nullopt if no process failed by itself: somebody killed it, or nothing failed.
std::optional<Failure> OwnFailure(absl::string_view reason);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_FAILURE_BUDGET_H_
