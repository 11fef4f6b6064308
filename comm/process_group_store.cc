// ProcessGroup's use of its store.

#include <algorithm>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/comm/internal/group_state.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/store/internal/bounded_call.h"

namespace lockstep::comm {
namespace {

constexpr absl::Duration kPatienceAfterFailure = absl::Seconds(1);
// How often a call under way checks whether the group has failed.
constexpr absl::Duration kInterval = absl::Milliseconds(20);

// Writes the rank's key, and blocks until every rank has written its own.
absl::Status AwaitRanks(c10d::Store& store, const std::string& key, int rank, int size, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  store.set(absl::StrCat(key, "/", rank), "");
  std::vector<int> missing;
  for (int i = 0; i < size; ++i) missing.push_back(i);
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    // The existence of a key proves nothing. In a sealed store get() fails if a stranger wrote the key.
    const auto arrived = [&](int other) {
      const std::string theirs = absl::StrCat(key, "/", other);
      return store.check({theirs}) && store.get(theirs).empty();
    };
    missing.erase(std::remove_if(missing.begin(), missing.end(), arrived), missing.end());
    if (missing.empty()) return absl::OkStatus();
    if (absl::Now() >= deadline) break;
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError(absl::StrCat("these ranks did not arrive within ", absl::FormatDuration(timeout),
                                                  ": ", absl::StrJoin(missing, ", ")));
}

}  // namespace

std::string ProcessGroup::NextKey(absl::string_view purpose) { return absl::StrCat(purpose, "/", keys_.fetch_add(1)); }

absl::Status ProcessGroup::CallStore(absl::Time deadline, std::function<absl::Status(c10d::Store& store)> call) const {
  if (!store_) return absl::FailedPreconditionError("the group has no store");
  const bool failed_before = state_->failed();
  if (failed_before) deadline = std::min(deadline, absl::Now() + kPatienceAfterFailure);
  internal::BoundedCall bounded([store = store_, call = std::move(call)] { return call(*store); });
  while (!bounded.Await(std::min(deadline, absl::Now() + kInterval))) {
    if (!failed_before && state_->failed()) return state_->failure();
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("the store has not answered in time");
  }
  // If the watch has seen a death, the group's failure names it and the store's error does not.
  return bounded.result().ok() || failed_before || !state_->failed() ? bounded.result() : state_->failure();
}

absl::Status ProcessGroup::MonitoredBarrier(absl::Duration timeout) {
  if (state_->failed()) return state_->failure();
  internal::Call call = internal::Call::Of("monitored_barrier");
  call.sequence = state_->NextSequence(call.kind);
  if (!store_) return state_->Refuse(call, absl::FailedPreconditionError("the group has no store"));
  state_->Begin(call);
  const auto await = [key = NextKey("monitored_barrier"), rank = rank_, size = size_, timeout](c10d::Store& store) {
    return AwaitRanks(store, key, rank, size, timeout);
  };
  // AwaitRanks() ends before this deadline, and its error names the missing ranks.
  const absl::Status status = CallStore(absl::Now() + timeout + absl::Seconds(1), await);
  if (!status.ok()) return state_->ExplainNamed(call, status);
  state_->End(call);
  return status;
}

}  // namespace lockstep::comm
