#include "lockstep/comm/hierarchical/internal/all_reduce.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::comm::hierarchical::internal {
namespace {

template <typename Options>
Options With(const c10d::ReduceOp& op) {
  Options options;
  options.reduceOp = op;
  return options;
}

}  // namespace

AllReducePhases::AllReducePhases(const Levels& levels, at::Tensor tensor, c10d::ReduceOp op)
    : levels_(levels), tensor_(tensor.detach()), average_(op == c10d::ReduceOp::AVG), op_(std::move(op)) {
  if (average_) op_ = c10d::ReduceOp::SUM;
  StartInward();
}

void AllReducePhases::StartInward() {
  const at::NoGradGuard no_grad;
  if (!levels_.even) {
    part_ = tensor_;
    std::vector<at::Tensor> tensors = {tensor_};
    work_ = levels_.inward->reduce(tensors, With<c10d::ReduceOptions>(op_));
    return;
  }
  const int64_t parts = levels_.inward->getSize(), count = tensor_.numel(), rest = count % parts;
  flat_ = tensor_.view({-1});
  if (rest != 0) {
    flat_ = at::zeros({count + parts - rest}, tensor_.options());
    flat_.narrow(0, 0, count).copy_(tensor_.view({-1}));
  }
  part_ = at::empty({flat_.numel() / parts}, tensor_.options());
  work_ = levels_.inward->_reduce_scatter_base(part_, flat_, With<c10d::ReduceScatterOptions>(op_));
}

void AllReducePhases::StartAcross() {
  if (!levels_.across) return;
  std::vector<at::Tensor> tensors = {part_};
  work_ = levels_.across->allreduce(tensors, With<c10d::AllreduceOptions>(op_));
}

void AllReducePhases::StartOutward() {
  const at::NoGradGuard no_grad;
  if (average_ && levels_.across) part_.div_(levels_.size);
  if (levels_.even) {
    work_ = levels_.outward->_allgather_base(flat_, part_);
  } else {
    std::vector<at::Tensor> tensors = {tensor_};
    work_ = levels_.outward->broadcast(tensors);
  }
}

// Requires: the phase's work is done.
void AllReducePhases::Next() {
  work_.reset();
  switch (phase_) {
    case Phase::kInward:
      phase_ = Phase::kAcross;
      return StartAcross();
    case Phase::kAcross:
      phase_ = Phase::kOutward;
      return StartOutward();
    case Phase::kOutward: {
      phase_ = Phase::kDone;
      const at::NoGradGuard no_grad;
      if (flat_.defined() && flat_.numel() != tensor_.numel()) {
        tensor_.view({-1}).copy_(flat_.narrow(0, 0, tensor_.numel()));
      }
      return;
    }
    case Phase::kDone:
      return;
  }
}

bool AllReducePhases::Test() {
  while (phase_ != Phase::kDone) {
    if (work_) {
      if (!work_->isCompleted()) return false;
      work_->wait(std::chrono::milliseconds(1));  // throws its error
    }
    Next();
  }
  return true;
}

void AllReducePhases::Finish(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (phase_ != Phase::kDone) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    // 0 would mean the backend's own time-out.
    if (work_) work_->wait(std::max(left, std::chrono::milliseconds(1)));
    Next();
  }
}

}  // namespace lockstep::comm::hierarchical::internal
