// How long a training stood still after each kind of fault.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_SUMMARY_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_SUMMARY_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/elastic/chaos/internal/faults.h"

namespace lockstep::elastic::chaos::internal {

// The value below or at which `percent` of the values are: the nearest one of them. `values` is not empty.
absl::Duration Percentile(std::vector<absl::Duration> values, int percent);

class Summary {
 public:
  // From the fault to the next step, and the longest time without a step until the fault after it.
  void Add(FaultKind kind, absl::Duration next_step, absl::Duration pause);

  int faults() const;

  // A table in Markdown: a row for each kind, and one for all.
  std::string Table() const;

 private:
  struct Times {
    std::vector<absl::Duration> next_steps, pauses;
  };
  std::map<FaultKind, Times> kinds_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_SUMMARY_H_
