#include "lockstep/comm/work.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/comm/internal/group_state.h"

namespace lockstep::comm {

Work::Work(absl::Status error) : status_(std::move(error)) {}

Work::Work(absl::Status error, internal::Call call, std::shared_ptr<internal::GroupState> group)
    : call_(std::move(call)), group_(std::move(group)), status_(std::move(error)) {}

Work::Work(c10::intrusive_ptr<c10d::Work> work, internal::Call call, std::shared_ptr<internal::GroupState> group)
    : work_(std::move(work)), call_(std::move(call)), group_(std::move(group)) {}

Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

Work Work::With(internal::Results results) && {
  results_ = std::move(results);
  if (!work_ && status_.ok()) internal::CopyResults(results_);
  return std::move(*this);
}

absl::Status Work::Wait() {
  if (!work_) return status_;
  // On NCCL a wait with a limit blocks the host. Without a limit it orders the stream.
  const bool cuda = call_.has_tensor && call_.tensor.is_cuda();
  return WaitAtMost(cuda ? absl::ZeroDuration() : group_->timeout());
}

absl::Status Work::WaitHost(absl::Time deadline) {
  if (!work_) return status_;
  const absl::Duration left = std::min(deadline - absl::Now(), group_->timeout());
  const bool copies = !results_.empty() && call_.tensor.is_cuda();
  LOCKSTEP_RETURN_IF_ERROR(WaitAtMost(std::max(left, absl::Milliseconds(1))));
  if (copies) c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(call_.tensor.device()).synchronize();
  return status_;
}

absl::Status Work::WaitAtMost(absl::Duration limit) {
  absl::Status error;
  try {
    if (!work_->wait(absl::ToChronoMilliseconds(limit))) error = absl::AbortedError("was aborted");
    if (call_.from_any) source_ = work_->sourceRank();
    if (!results_.empty()) internal::CopyResults(results_);
  } catch (...) {
    error = internal::BackendStatus("");
  }
  if (error.ok()) {
    group_->End(call_);
  } else {
    status_ = group_->Explain(call_, error);
  }
  work_.reset();
  return status_;
}

bool Work::IsCompleted() const {
  if (!work_) return true;
  try {
    return work_->isCompleted();
  } catch (...) {
    return true;  // Wait() returns the error
  }
}

std::string Work::id() const {
  if (!group_) return "";
  const std::string group = group_->name() == "world" ? "" : absl::StrCat(" in group \"", group_->name(), "\"");
  return internal::Id(call_) + group;
}

}  // namespace lockstep::comm
