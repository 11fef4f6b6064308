#include "lockstep/sampler/internal/checks.h"

#include <c10/util/Exception.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace lockstep::sampler::internal {

absl::Status CheckInRange(absl::string_view name, int64_t low, int64_t high, int64_t found) {
  if (low <= found && found <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected a value in [", low, ", ", high, "], found ", found));
}

absl::Status CheckSame(absl::string_view name, absl::string_view expected, absl::string_view found) {
  if (expected == found) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected ", expected, ", found ", found));
}

absl::Status CheckSame(absl::string_view name, int64_t expected, int64_t found) {
  return CheckSame(name, absl::string_view(absl::StrCat(expected)), absl::string_view(absl::StrCat(found)));
}

absl::Status CheckSame(absl::string_view name, bool expected, bool found) {
  return CheckSame(name, absl::string_view(expected ? "true" : "false"), absl::string_view(found ? "true" : "false"));
}

absl::Status CheckNumReplicas(absl::string_view sampler, int64_t num_replicas) {
  if (num_replicas > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(sampler, ": num_replicas: expected a positive number, found ", num_replicas));
}

absl::Status CheckRank(absl::string_view sampler, int64_t num_replicas, int64_t rank) {
  const absl::Status status = CheckNumReplicas(sampler, num_replicas);
  return status.ok() ? CheckInRange(absl::StrCat(sampler, ": rank"), 0, num_replicas - 1, rank) : status;
}

void ThrowValueErrorUnlessOk(const absl::Status& status) {
  TORCH_CHECK_VALUE(status.ok(), std::string(status.message()));
}

int64_t NewSizeOrThrow(absl::string_view sampler, int64_t low, size_t new_size) {
  TORCH_CHECK_VALUE(static_cast<size_t>(low) <= new_size && new_size <= kMaxSize, std::string(sampler),
                    "::reset: new_size: expected a value in [", low, ", ", kMaxSize, "], found ", new_size);
  return static_cast<int64_t>(new_size);
}

void ThrowIfEmptyBatch(absl::string_view sampler, size_t batch_size) {
  TORCH_CHECK_VALUE(batch_size > 0, std::string(sampler), "::next: expected a batch_size of at least 1, found 0");
}

}  // namespace lockstep::sampler::internal
