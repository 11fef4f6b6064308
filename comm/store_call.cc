#include "lockstep/comm/store_call.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/time/clock.h"
#include "lockstep/comm/internal/group_state.h"
#include "lockstep/comm/rendezvous/bounded_call.h"

namespace lockstep::comm {
namespace {

constexpr absl::Duration kPatienceAfterFailure = absl::Seconds(1);
// How often a call under way looks whether the group has failed.
constexpr absl::Duration kInterval = absl::Milliseconds(20);

}  // namespace

absl::Status CallStore(const ProcessGroup& group, absl::Time deadline,
                       std::function<absl::Status(c10d::Store& store)> call) {
  if (!group.store()) return absl::FailedPreconditionError("the group has no store");
  const internal::GroupState& state = *internal::StateOf(group);
  const bool failed_before = state.failed();
  if (failed_before) deadline = std::min(deadline, absl::Now() + kPatienceAfterFailure);
  internal::BoundedCall bounded([store = group.store(), call = std::move(call)] { return call(*store); });
  while (!bounded.Await(std::min(deadline, absl::Now() + kInterval))) {
    if (!failed_before && state.failed()) return state.failure();
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("the store has not answered in time");
  }
  // An error that comes of a death which the watch has seen is about the death.
  return bounded.result().ok() || failed_before || !state.failed() ? bounded.result() : state.failure();
}

}  // namespace lockstep::comm
