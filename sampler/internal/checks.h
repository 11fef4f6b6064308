// Checks of samplers' arguments. `name` is the sampler and the argument: "RandomSampler: size".

#ifndef LOCKSTEP_SAMPLER_INTERNAL_CHECKS_H_
#define LOCKSTEP_SAMPLER_INTERNAL_CHECKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lockstep::sampler::internal {

// Up to here a size and a number of ranks add up without overflow.
constexpr int64_t kMaxSize = int64_t{1} << 62;

// InvalidArgument unless low <= found <= high, or expected == found.
absl::Status CheckInRange(absl::string_view name, int64_t low, int64_t high, int64_t found);
absl::Status CheckSame(absl::string_view name, int64_t expected, int64_t found);
absl::Status CheckSame(absl::string_view name, bool expected, bool found);
absl::Status CheckSame(absl::string_view name, absl::string_view expected, absl::string_view found);
// InvalidArgument unless num_replicas is positive, and unless rank is one of [0, num_replicas).
absl::Status CheckNumReplicas(absl::string_view sampler, int64_t num_replicas);
absl::Status CheckRank(absl::string_view sampler, int64_t num_replicas, int64_t rank);

// Throw c10::ValueError if the status is an error, the size is not in [low, kMaxSize], or batch_size is 0.
void ThrowValueErrorUnlessOk(const absl::Status& status);
int64_t NewSizeOrThrow(absl::string_view sampler, int64_t low, size_t new_size);
void ThrowIfEmptyBatch(absl::string_view sampler, size_t batch_size);

}  // namespace lockstep::sampler::internal

#endif  // LOCKSTEP_SAMPLER_INTERNAL_CHECKS_H_
