#include "lockstep/ddp/internal/used_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// A tensor over `numbers`, which must outlive it.
at::Tensor Host(std::vector<int32_t>& numbers) {
  return at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kInt);
}

}  // namespace

UsedParameters::UsedParameters(int parameters, c10::Device device, bool each_step)
    : used_(parameters),
      each_step_(each_step),
      exchanged_(at::empty({parameters}, at::device(device).dtype(at::kInt))) {}

void UsedParameters::StartExchange(comm::ProcessGroup& group) {
  exchanged_.copy_(Host(used_));
  work_ = group.AllReduceAsync(exchanged_);
}

absl::Status UsedParameters::WaitForAll() {
  if (!work_) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(work_->Wait());
  work_.reset();
  Host(used_).copy_(exchanged_);
  return absl::OkStatus();
}

void UsedParameters::MarkAllBut(const std::vector<int>& unused) {
  auto next = unused.begin();
  for (size_t i = 0; i < used_.size(); ++i) {
    if (next != unused.end() && *next == static_cast<int>(i)) {
      ++next;
    } else {
      Mark(static_cast<int>(i));
    }
  }
}

bool UsedParameters::NoneUsed(const std::vector<int>& parameters) const {
  if (!each_step_ && !final_) return false;
  return std::none_of(parameters.begin(), parameters.end(), [this](int i) { return Used(i); });
}

void UsedParameters::EndStep() {
  if (each_step_) std::fill(used_.begin(), used_.end(), 0);
}

}  // namespace lockstep::ddp::internal
