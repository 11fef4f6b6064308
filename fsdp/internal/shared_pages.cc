#include "lockstep/fsdp/internal/shared_pages.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/fsdp/internal/parameter_key.h"

namespace lockstep::fsdp::internal {
namespace {

constexpr int64_t kLine = 64;

int64_t RoundUp(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterMemory>> SharedPages::Create(const Mesh& mesh,
                                                                     const std::vector<ShardedUnit>& units,
                                                                     bool with_values) {
  comm::ProcessGroup* const group = mesh.shard_group();
  int64_t bytes = kLine;
  for (const ShardedUnit& unit : units) bytes += RoundUp(unit.layout.numel * unit.parameters[0].tensor.element_size());
  std::unique_ptr<SharedPages> pages(new SharedPages(mesh, BufferBytes(units)));
  if (group->size() == 1) {
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { pages->memory_ = at::empty({bytes}, at::kByte); }));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(pages->memory_, comm::internal::GroupAccess::AllocateCommon(*group, bytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { pages->Move(units, with_values); }));
  LOCKSTEP_RETURN_IF_ERROR(group->Barrier());
  return std::unique_ptr<ParameterMemory>(std::move(pages));
}

int64_t SharedPages::BufferBytes(const std::vector<ShardedUnit>& units) {
  int64_t bytes = 1;
  for (const ShardedUnit& unit : units) {
    if (unit.parameters[0].tensor.requires_grad()) bytes = std::max(bytes, unit.chunk_bytes());
  }
  return bytes;
}

void SharedPages::Move(const std::vector<ShardedUnit>& units, bool with_values) {
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
      const at::Tensor flat = memory.narrow(0, unit.layout.offsets[k], parameter.numel());
      const at::Tensor moved = flat.as_strided(parameter.sizes(), parameter.strides());
      if (with_values && group_->rank() == 0) moved.copy_(parameter);
      ReplaceData(parameter, moved);
    }
    units_.push_back({memory, unit.layout.offsets, unit.parameters});
  }
}

void SharedPages::BeginForward() {
  for (const Unit& unit : units_) {
    const auto* const memory = static_cast<const char*>(unit.memory.const_data_ptr());
    for (size_t k = 0; k < unit.parameters.size(); ++k) {
      const auto& [name, parameter] = unit.parameters[k];
      if (parameter.numel() == 0 || parameter.const_data_ptr() == memory + unit.offsets[k] * parameter.element_size())
        continue;
      ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
          "rank ", group_->rank(), ": fully sharded training: the data of ", name, " was replaced after fsdp::Wrap")));
    }
  }
}

// Another rank may still read the parameters, in an evaluation before.
absl::Status SharedPages::BeginFull(bool write) {
  writes_ = write;
  return write ? group_->Barrier() : absl::OkStatus();
}

at::Tensor SharedPages::Shard(size_t unit, const Piece& piece) const {
  const Unit& of = units_[unit];
  return of.memory.narrow(0, of.offsets[piece.parameter] + piece.begin, piece.end - piece.begin);
}

}  // namespace lockstep::fsdp::internal
