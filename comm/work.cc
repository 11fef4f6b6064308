#include "lockstep/comm/work.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

absl::Status Work::Wait() {
  if (!work_) return status_;
  // On NCCL a wait with a limit blocks the host. Without a limit it orders the stream.
  const bool cuda = call_.has_tensor && call_.tensor.is_cuda();
  return WaitAtMost(cuda ? absl::ZeroDuration() : group_->timeout());
}

absl::Status Work::WaitHost(absl::Time deadline) {
  if (!work_) return status_;
  const absl::Duration left = std::min(deadline - absl::Now(), group_->timeout());
  return WaitAtMost(std::max(left, absl::Milliseconds(1)));
}

absl::Status Work::WaitAtMost(absl::Duration limit) {
  absl::Status error;
  try {
    if (!work_->wait(absl::ToChronoMilliseconds(limit))) error = absl::AbortedError("was aborted");
    if (call_.from_any) source_ = work_->sourceRank();
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
