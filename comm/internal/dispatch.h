#ifndef LOCKSTEP_COMM_INTERNAL_DISPATCH_H_
#define LOCKSTEP_COMM_INTERNAL_DISPATCH_H_

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "lockstep/base/logging.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/argument_check.h"
#include "lockstep/comm/internal/backend_status.h"
#include "lockstep/comm/internal/group_state.h"
#include "lockstep/comm/process_group.h"

// The way of every call from a ProcessGroup's method to its backend; included by the sources that define the methods.

namespace lockstep::comm {

// check() returns the Status of the arguments. arguments() returns a text of the arguments other than the tensor ("op
// sum"). start(backend) returns the c10d::Work, or null if the call is already done.
template <typename Check, typename Arguments, typename Start>
Work ProcessGroup::Dispatch(internal::Call call, const Check& check, const Arguments& arguments, const Start& start) {
  internal::GroupState& state = *state_;
  if (state.failed()) return Work(state.failure());
  absl::Status valid = check();
  c10d::Backend* const backend = valid.ok() ? BackendFor(call) : nullptr;
  if (valid.ok() && !backend) valid = NoBackend(call);
  if (!valid.ok()) {
    // The next call gets this number, as on the ranks that were not refused this one.
    call.sequence = state.PeekSequence(call.kind);
    const absl::Status refused = state.Refuse(call, valid);
    return Work(refused, std::move(call), state_);
  }
  call.sequence = state.NextSequence(call.kind);
  if (state.detail() && call.kind == internal::Call::Kind::kCollective) {
    const absl::Status agreed = state.Agree(call, arguments());
    if (!agreed.ok()) return Work(agreed, std::move(call), state_);
  }
  return DispatchUnchecked(*backend, std::move(call), start);
}

template <typename Start>
Work ProcessGroup::DispatchUnchecked(c10d::Backend& backend, internal::Call call, const Start& start) {
  internal::GroupState& state = *state_;
  VLOG(2) << state.NameOf(call);
  state.Begin(call);
  absl::Status error;
  try {
    auto work = start(backend);
    if (!work) {
      state.End(call);
      return Work(absl::OkStatus(), std::move(call), state_);
    }
    return Work(std::move(work), std::move(call), state_);
  } catch (...) {
    error = internal::BackendStatus("");
  }
  // A backend returns this before it sends anything (comm/backend.h), so the ranks stay in step.
  if (error.code() == absl::StatusCode::kUnimplemented) {
    state.End(call);
    error = state.Refuse(call, error);
  } else {
    error = state.Explain(call, error);
  }
  return Work(error, std::move(call), state_);
}

namespace internal {

inline c10d::ReduceOp ToC10d(ReduceOp op) {
  static constexpr c10d::ReduceOp::RedOpType kOps[] = {
      c10d::ReduceOp::SUM, c10d::ReduceOp::AVG,  c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN,
      c10d::ReduceOp::MAX, c10d::ReduceOp::BAND, c10d::ReduceOp::BOR,     c10d::ReduceOp::BXOR};
  return kOps[static_cast<int>(op)];
}

}  // namespace internal
}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_INTERNAL_DISPATCH_H_
