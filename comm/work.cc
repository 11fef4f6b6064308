#include "lockstep/comm/work.h"

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/comm/internal/group_failure.h"

namespace lockstep::comm {

Work::Work(absl::Status error) : status_(std::move(error)) {}

Work::Work(c10::intrusive_ptr<c10d::Work> work, std::string name, std::shared_ptr<internal::GroupFailure> failure,
           std::function<void()> after)
    : work_(std::move(work)), name_(std::move(name)), failure_(std::move(failure)), after_(std::move(after)) {}

Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;
Work::~Work() = default;

absl::Status Work::Wait() {
  if (!work_) return status_;
  try {
    if (!work_->wait()) status_ = absl::AbortedError(absl::StrCat(name_, ": was aborted"));
    if (status_.ok() && after_) after_();
  } catch (...) {
    status_ = internal::BackendStatus(name_);
  }
  failure_->Record(status_);
  work_.reset();
  after_ = nullptr;
  return status_;
}

bool Work::IsCompleted() const { return !work_ || work_->isCompleted(); }

}  // namespace lockstep::comm
