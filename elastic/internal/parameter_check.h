// Looks for parameters that differ between ranks, and for numbers that are not finite.

#ifndef LOCKSTEP_ELASTIC_INTERNAL_PARAMETER_CHECK_H_
#define LOCKSTEP_ELASTIC_INTERNAL_PARAMETER_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/internal/kept_state.h"
#include "lockstep/elastic/internal/vote.h"

namespace lockstep::elastic::internal {

// Compares the parameters of all ranks by their hashes. nullopt if they are equal. All ranks must call it, with
// parameters of the same names. One message of 8 bytes from each rank, and if they differ, 8 bytes for each parameter.
absl::StatusOr<std::optional<Vote>> CompareParameters(comm::ProcessGroup& group,
                                                      const std::vector<NamedTensor>& parameters);

struct NonFinite {
  int rank = 0;      // the lowest that has some
  std::string what;  // "the gradient of net: first.weight is not finite"
};

// A gradient or parameter that is not finite on any rank. All ranks must call it, and get the same result.
absl::StatusOr<std::optional<NonFinite>> FindNonFinite(comm::ProcessGroup& group,
                                                       const std::vector<NamedTensor>& parameters);

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_INTERNAL_PARAMETER_CHECK_H_
