#include "lockstep/fsdp/internal/state_gatherer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/status.h"

namespace lockstep::fsdp::internal {

StateGatherer::StateGatherer(const std::vector<ShardedParameter>& parameters, const WholeOptimizer& optimizer,
                             comm::ProcessGroup* group)
    : parameters_(parameters), optimizer_(optimizer), group_(group), wanted_(at::zeros({2}, at::kLong)) {}

at::Tensor StateGatherer::OwnPart(size_t parameter, int64_t item) const {
  if (item < 0) return parameters_[parameter].shard.detach().reshape({-1});
  const checkpoint::Value* own = optimizer_.own[parameter].Find(optimizer_.states[parameter][item].key);
  return own->tensor().detach().reshape({-1});
}

absl::Status StateGatherer::Exchange(int64_t parameter, int64_t item) const {
  wanted_.select(0, 0).fill_(parameter);
  wanted_.select(0, 1).fill_(item);
  return group_->Broadcast(wanted_, /*root=*/0);
}

absl::StatusOr<at::Tensor> StateGatherer::Bring(size_t parameter, size_t item) const {
  return Collect(parameter, static_cast<int64_t>(item), optimizer_.states[parameter][item].dtype);
}

absl::StatusOr<at::Tensor> StateGatherer::BringParameter(size_t parameter) const {
  return Collect(parameter, -1, parameters_[parameter].dtype);
}

absl::StatusOr<at::Tensor> StateGatherer::Collect(size_t index, int64_t item, at::ScalarType dtype) const {
  LOCKSTEP_RETURN_IF_ERROR(Exchange(static_cast<int64_t>(index), item));
  const ShardedParameter& parameter = parameters_[index];
  const at::Tensor whole = at::empty({parameter.tensor.numel()}, dtype);
  for (const ShardedParameter::Part& part : parameter.parts) {
    if (part.replica != 0) continue;
    const at::Tensor place = whole.narrow(0, part.begin, part.end - part.begin);
    if (part.rank == group_->rank()) {
      place.copy_(OwnPart(index, item));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(group_->Recv(place, part.rank).status());
    }
  }
  return whole;
}

absl::Status StateGatherer::End() const { return Exchange(-1, -1); }

absl::Status StateGatherer::Serve() const {
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(wanted_, /*root=*/0));
    const int64_t parameter = wanted_.select(0, 0).item<int64_t>(), item = wanted_.select(0, 1).item<int64_t>();
    if (parameter < 0) return absl::OkStatus();
    const ShardedParameter::Part* const own = parameters_[parameter].PartOf(group_->rank());
    if (!own || own->replica != 0) continue;
    LOCKSTEP_RETURN_IF_ERROR(group_->Send(OwnPart(parameter, item).cpu().contiguous(), /*destination=*/0));
  }
}

}  // namespace lockstep::fsdp::internal
