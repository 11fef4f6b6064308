#include "lockstep/fsdp/internal/shared_pages.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::fsdp::internal {
namespace {

constexpr int64_t kLine = 64;

int64_t RoundUp(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterMemory>> SharedPages::Create(comm::ProcessGroup* group,
                                                                     const std::vector<ShardedUnit>& units) {
  int64_t bytes = kLine, buffer_bytes = 1;
  for (const ShardedUnit& unit : units) {
    const at::Tensor& first = unit.parameters[0].tensor;
    bytes += RoundUp(unit.layout.numel * first.element_size());
    if (first.requires_grad())
      buffer_bytes = std::max<int64_t>(buffer_bytes, unit.layout.slices.back() * first.element_size());
  }
  std::unique_ptr<SharedPages> pages(new SharedPages(group, buffer_bytes));
  if (group->size() == 1) {
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { pages->memory_ = at::empty({bytes}, at::kByte); }));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(pages->memory_, comm::internal::GroupAccess::AllocateCommon(*group, bytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { pages->Move(units); }));
  LOCKSTEP_RETURN_IF_ERROR(group->Barrier());
  return std::unique_ptr<ParameterMemory>(std::move(pages));
}

void SharedPages::Move(const std::vector<ShardedUnit>& units) {
  const c10::NoGradGuard no_grad;
  int64_t place = 0;
  const auto take = [&](int64_t numel, at::ScalarType dtype) {
    const int64_t size = numel * static_cast<int64_t>(c10::elementSize(dtype));
    const at::Tensor taken = memory_.narrow(0, place, size).view(dtype);
    place += RoundUp(size);
    return taken;
  };
  for (const ShardedUnit& unit : units) {
    const at::Tensor memory = take(unit.layout.numel, unit.parameters[0].tensor.scalar_type());
    for (size_t k = 0; k < unit.parameters.size(); ++k) {
      const at::Tensor& parameter = unit.parameters[k].tensor;
      MoveParameter(parameter, memory.narrow(0, unit.layout.offsets[k], parameter.numel()));
    }
    units_.push_back({memory, unit.layout.offsets});
  }
}

// Another rank may still read the parameters, in an evaluation before.
absl::Status SharedPages::BeginFull(bool write) {
  writes_ = write;
  return write ? group_->Barrier() : absl::OkStatus();
}

void SharedPages::MoveParameter(const at::Tensor& parameter, const at::Tensor& flat) const {
  const at::Tensor moved = flat.as_strided(parameter.sizes(), parameter.strides());
  if (group_->rank() == 0) moved.copy_(parameter);
  at::Tensor(parameter).set_data(moved);
}

at::Tensor SharedPages::Shard(size_t unit, const Piece& piece) const {
  const Unit& of = units_[unit];
  return of.memory.narrow(0, of.offsets[piece.parameter] + piece.begin, piece.end - piece.begin);
}

}  // namespace lockstep::fsdp::internal
