// Decides when a failure that comes again and again ends the job. Pure.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_FAILURE_BUDGET_H_
#define LOCKSTEP_ELASTIC_INTERNAL_FAILURE_BUDGET_H_

#include <stdint.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::elastic::internal {

// A cause is the same one if it differs only in numbers: ranks, steps, addresses.
//
//   FailureBudget budget(3, 10);
//   budget.Add(failure);
//   if (const std::optional<std::string> verdict = budget.Verdict()) EndTheJob(*verdict);
class FailureBudget {
 public:
  // The job ends with the `most`th failure by one cause within `window` steps. `most` = 0: never.
  FailureBudget(int most, int64_t window) : most_(most), window_(window) {}

  void Add(const launch::StepFailure& failure);

  // Why the last failure ends the job, in a sentence, or nullopt.
  std::optional<std::string> Verdict() const;

  // The failures that still count, for a rank that was not there.
  const std::vector<launch::StepFailure>& failures() const { return failures_; }
  void Restore(std::vector<launch::StepFailure> failures) { failures_ = std::move(failures); }

 private:
  const int most_;
  const int64_t window_;
  std::vector<launch::StepFailure> failures_;  // in the order of their steps
};

// For people: "error of rank 0 in step 30: sample 240 is broken".
std::string ErrorText(const launch::StepFailure& failure);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_FAILURE_BUDGET_H_
