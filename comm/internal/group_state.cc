#include "lockstep/comm/internal/group_state.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/launch/report/report.h"

namespace lockstep::comm::internal {
namespace {

std::atomic<int> failed_groups{0};  // of this process, not destroyed yet

}  // namespace

GroupState::GroupState(Options options) : options_(std::move(options)) {}

GroupState::~GroupState() {
  if (failed()) failed_groups.fetch_sub(1);
}

bool GroupState::AnyFailed() { return failed_groups.load() > 0; }

void GroupState::SetBackends(std::vector<c10::intrusive_ptr<c10d::Backend>> backends) {
  {
    MutexLock lock(mutex_);
    backends_ = std::move(backends);
    if (first_.ok()) return;
  }
  AbortBackends();
}

absl::Status GroupState::failure() const {
  MutexLock lock(mutex_);
  return first_;
}

void GroupState::Fail(const absl::Status& cause) { FailAs(cause, /*may_be_of_another_rank=*/false); }

void GroupState::LearnFailure(const absl::Status& cause) { FailAs(cause, /*may_be_of_another_rank=*/true); }

void GroupState::LearnErrorOf(c10d::Backend& backend) {
  if (failed()) return;
  try {
    if (backend.getError() == c10d::ErrorType::SUCCESS) return;
  } catch (...) {
    return;  // a backend without such errors
  }
  const absl::Status error = absl::UnavailableError(
      absl::StrCat("rank ", rank(), ": backend \"", backend.getBackendName(), "\" has lost its connection to a rank"));
  LearnOwnError(error);
}

// Or the failure that explains it.
void GroupState::LearnOwnError(const absl::Status& error) {
  RecordOwnError(error);
  if (!failed()) LearnFailure(watch_ ? watch_->Explain(error) : error);
}

void GroupState::RecordOwnError(const absl::Status& error) {
  MutexLock lock(mutex_);
  if (own_error_.ok()) own_error_ = error;
}

// A broken connection or a timeout is caused by another rank, whichever rank reports it first.
bool GroupState::IsOfAnotherRankLocked(const absl::Status& cause) const {
  if (closing_) return false;
  return cause.message() != own_error_.message() || absl::IsUnavailable(cause) || absl::IsDeadlineExceeded(cause);
}

void GroupState::FailAs(const absl::Status& cause, bool may_be_of_another_rank) {
  {
    MutexLock lock(mutex_);
    if (!first_.ok()) return;
    if (may_be_of_another_rank && IsOfAnotherRankLocked(cause)) launch::RecordFailureOfAnotherRank();
    first_ = cause;
    failed_groups.fetch_add(1);
    failed_.store(true, std::memory_order_release);
  }
  VLOG(1) << "rank " << rank() << ": group \"" << name() << "\" failed: " << cause;
  AbortBackends();
}

std::vector<c10::intrusive_ptr<c10d::Backend>> GroupState::backends() const {
  MutexLock lock(mutex_);
  return backends_;
}

void GroupState::AbortBackends() {
  for (const auto& backend : backends()) {
    try {
      backend->abort();
    } catch (...) {
      LOG(WARNING) << "rank " << rank() << ": aborting a backend: " << BackendStatus("").message();
    }
  }
}

void GroupState::Abort(const absl::Status& cause) {
  if (failed()) return;
  Fail(cause);
  if (watch_) watch_->Abort(cause);
}

void GroupState::Close() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  for (const auto& backend : backends()) {
    if (failed()) break;
    try {
      backend->waitForPendingWorks();
    } catch (...) {  // the backend cannot abort, or failed to: no caller waits for it
    }
  }
  watch_.reset();
  std::vector<c10::intrusive_ptr<c10d::Backend>> released;
  MutexLock lock(mutex_);
  released.swap(backends_);
}

std::string GroupState::NameOf(const Call& call) const {
  const std::string group = name() == "world" ? "" : absl::StrCat(" of group \"", name(), "\"");
  return absl::StrCat("rank ", rank(), group, ": ", Describe(call));
}

absl::Status GroupState::Agree(const Call& call, const std::string& arguments) {
  std::string fingerprint = call.operation;
  if (call.has_tensor) {
    absl::StrAppend(&fingerprint, " of ",
                    call.shapes_differ ? c10::toString(call.tensor.scalar_type()) : Describe(call.tensor).c_str());
  }
  if (!arguments.empty()) absl::StrAppend(&fingerprint, ", ", arguments);
  const absl::Status status = watch_->Agree(call.sequence, fingerprint, absl::Now() + timeout());
  if (status.ok()) return status;
  LearnFailure(status);
  return Annotate(failure(), NameOf(call));
}

absl::Status GroupState::Refuse(const Call& call, const absl::Status& status) const {
  return Annotate(status, NameOf(call));
}

absl::Status GroupState::CauseOf(const Call& call, const absl::Status& error) {
  if (!watch_) return error;
  if (error.code() == absl::StatusCode::kDeadlineExceeded && call.kind == Call::Kind::kCollective) {
    return watch_->ExplainTimeout(call.sequence, call.operation, timeout());
  }
  return watch_->Explain(error);
}

// The status that the call `name` returns for the group's first cause, which another call or the watch may have
// recorded.
absl::Status GroupState::FirstCause(const std::string& name) const {
  const absl::Status cause = failure();
  return absl::StartsWith(cause.message(), name) ? cause : Annotate(cause, name);
}

absl::Status GroupState::Explain(const Call& call, const absl::Status& error) {
  const std::string name = NameOf(call);
  const absl::Status own = Annotate(error, name);
  RecordOwnError(own);
  if (!failed()) LearnFailure(CauseOf(call, own));
  return FirstCause(name);
}

absl::Status GroupState::ExplainNamed(const Call& call, const absl::Status& error) {
  const std::string name = NameOf(call);
  LearnOwnError(Annotate(error, name));
  return FirstCause(name);
}

}  // namespace lockstep::comm::internal
