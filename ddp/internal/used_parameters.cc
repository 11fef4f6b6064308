#include "lockstep/ddp/internal/used_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

// Over `numbers`, which must outlive it.
at::Tensor Host(std::vector<int32_t>& numbers) {
  return at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kInt);
}

}  // namespace

UsedParameters::UsedParameters(int parameters, c10::Device device)
    : used_(parameters), exchanged_(at::empty({parameters}, at::device(device).dtype(at::kInt))) {}

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

void UsedParameters::Clear() { std::fill(used_.begin(), used_.end(), 0); }

}  // namespace lockstep::ddp::internal
