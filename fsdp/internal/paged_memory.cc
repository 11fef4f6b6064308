#include "lockstep/fsdp/internal/paged_memory.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::fsdp::internal {
namespace {

// True if another tensor has the parameter's memory, such as a view or a state dict.
bool IsShared(const at::Tensor& parameter) { return parameter.storage().use_count() > 1; }

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterMemory>> PagedMemory::Create(comm::ProcessGroup* group,
                                                                     const std::vector<ShardedUnit>& units,
                                                                     const Options& options, bool keeps) {
  std::vector<std::string> names;
  int64_t bytes = 1;
  std::string shared;
  for (const ShardedUnit& unit : units) {
    names.push_back(unit.parameters[0].name);
    const auto size = static_cast<int64_t>(c10::elementSize(unit.reduce_dtype));
    bytes = std::max({bytes, unit.layout.slices.back() * size,
                      group->size() * unit.layout.share * unit.parameters[0].tensor.element_size()});
    for (const NamedTensor& parameter : unit.parameters) {
      if (!keeps && shared.empty() && IsShared(parameter.tensor)) shared = parameter.name;
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, group->AllGatherBytes(shared));
  for (int rank = 0; rank < group->size(); ++rank) {
    if (all[rank].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("on rank ", rank, " another tensor holds the memory of ", all[rank],
                     ", such as a view or a state dict, or it is a view itself: expected memory of its own"));
  }
  std::unique_ptr<PagedMemory> memory(new PagedMemory(group, bytes, std::move(names), options.whole_units));
  absl::Status status;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { status = memory->Distribute(units, keeps, options.debug); }));
  LOCKSTEP_RETURN_IF_ERROR(status);
  return std::unique_ptr<ParameterMemory>(std::move(memory));
}

absl::Status PagedMemory::Distribute(const std::vector<ShardedUnit>& units, bool keeps, bool debug) {
  for (size_t i = 0; i < units.size(); ++i) {
    units_.push_back(std::make_shared<PagedUnit>(group_, units[i]));
    if (debug) LOCKSTEP_RETURN_IF_ERROR(units_[i]->ReserveAddresses());
    const auto need = [this, i](PagedUnit& unit) { Need(unit, i); };
    if (keeps) {
      units_[i]->Keep(units_[i], need);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(units_[i]->Distribute(units_[i], buffers(), need));
    }
  }
  return absl::OkStatus();
}

PagedMemory::~PagedMemory() {
  for (const std::shared_ptr<PagedUnit>& unit : units_) unit->Forsake();
}

std::string PagedMemory::Who() const { return absl::StrCat("rank ", group_->rank(), ": fully sharded training"); }

ParameterMemory::Bytes PagedMemory::bytes() const {
  Bytes bytes;
  int64_t most = std::min<int64_t>(whole_units_, static_cast<int64_t>(units_.size()));
  const auto in_order = [](const std::shared_ptr<PagedUnit>& unit) { return unit->in_order(); };
  if (!std::all_of(units_.begin(), units_.end(), in_order)) ++most;  // for the shares of a unit that is gathered
  for (const std::shared_ptr<PagedUnit>& unit : units_) bytes.shards += unit->own_bytes();
  bytes.buffers = most * buffers().buffer_bytes();
  return bytes;
}

void PagedMemory::BeginForward() {
  if (std::exchange(assembled_, false)) FreeAll();  // the other ranks gather
  ThrowIfError(std::exchange(written_, absl::OkStatus()));
  for (const std::shared_ptr<PagedUnit>& unit : units_) {
    const std::string replaced = unit->Replaced();
    if (replaced.empty()) continue;
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(Who(), ": the data of ", replaced, " was replaced after fsdp::Wrap")));
  }
  if (c10::GradMode::is_enabled()) {
    training_ = true;
  } else {
    ++evaluations_;
  }
}

void PagedMemory::EndForward() {
  if (!c10::GradMode::is_enabled() && evaluations_ > 0) --evaluations_;
}

// Called by operators, in any mode of autograd.
void PagedMemory::Need(PagedUnit& unit, size_t index) {
  if (shards_only_) return;
  if (before_use_) before_use_();
  const auto found =
      std::find_if(present_.begin(), present_.end(), [&](const Present& present) { return present.unit == &unit; });
  if (found != present_.end()) {
    std::rotate(found, found + 1, present_.end());
    return;
  }
  if (!training_ && evaluations_ == 0) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(Who(), ": the unit of ", unit.name(),
                     " is used outside of forward and backward: use it while all ranks have ", "FullParameters()")));
  }
  const c10::InferenceMode no_inference(false);
  const c10::NoGradGuard no_grad;
  MakeRoom();
  ThrowIfError(order_.Agree(UnitOrder::Act::kGather, index).status());
  ThrowIfError(unit.Gather(buffers().Take(), buffers()));
  present_.push_back({&unit, /*pooled=*/true});
}

// For one more unit. Those that the operator uses stay, too.
void PagedMemory::MakeRoom() {
  const std::vector<Present> present = present_;
  for (const Present& oldest : present) {
    if (static_cast<int>(present_.size()) >= whole_units_) FreeIfUnused(*oldest.unit);
  }
}

void PagedMemory::FreeIfUnused(PagedUnit& unit) {
  const auto found =
      std::find_if(present_.begin(), present_.end(), [&](const Present& present) { return present.unit == &unit; });
  if (found == present_.end() || unit.in_use() || full_) return;
  const std::string written = unit.Written();
  if (!written.empty() && written_.ok()) {
    written_ = absl::FailedPreconditionError(
        absl::StrCat(Who(), ": ", written, " was written to outside of Step(), and the write is lost: write while all ",
                     "ranks have FullParameters(fsdp::Access::kWrite)"));
  }
  const at::Tensor memory = unit.Free();
  if (found->pooled) buffers().Give(memory);
  present_.erase(found);
}

void PagedMemory::FreeAll() {
  const std::vector<Present> present = present_;
  for (const Present& one : present) FreeIfUnused(*one.unit);
}

absl::Status PagedMemory::BeforeReduction(size_t unit, bool brings) {
  using Act = UnitOrder::Act;
  if (brings) return order_.Agree(Act::kReduce, unit).status();
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const UnitOrder::Event event, order_.Agree(Act::kFollow, unit));
    if (event.act == Act::kReduce && event.unit == static_cast<int64_t>(unit)) return absl::OkStatus();
    if (event.act != Act::kGather) {
      return absl::InternalError(
          absl::StrCat(Who(), ": the ranks with a virtual rank reduce unit ", event.unit, ", expected unit ", unit));
    }
    LOCKSTEP_RETURN_IF_ERROR(units_[event.unit]->JoinGather(buffers()));
  }
}

absl::Status PagedMemory::BeginFull(bool write) {
  LOCKSTEP_RETURN_IF_ERROR(std::exchange(written_, absl::OkStatus()));
  LOCKSTEP_RETURN_IF_ERROR(order_.Agree(UnitOrder::Act::kFull).status());
  absl::Status status;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(Who(), [&] { status = GatherAll(); }));
  if (!status.ok()) {
    FreeAll();
    return status;
  }
  full_ = true;
  writes_ = write;
  return absl::OkStatus();
}

absl::Status PagedMemory::GatherAll() {
  const c10::NoGradGuard no_grad;
  FreeAll();
  for (const std::shared_ptr<PagedUnit>& unit : units_) {
    LOCKSTEP_RETURN_IF_ERROR(unit->Gather(at::empty({unit->bytes()}, at::kByte), buffers()));
    present_.push_back({unit.get(), /*pooled=*/false});
  }
  return absl::OkStatus();
}

absl::Status PagedMemory::EndFull() {
  const c10::NoGradGuard no_grad;
  full_ = false;
  for (const std::shared_ptr<PagedUnit>& unit : units_) {
    if (writes_) unit->KeepWritten();
  }
  FreeAll();
  if (writes_) written_ = absl::OkStatus();
  return absl::OkStatus();
}

void PagedMemory::Assemble(bool has_all) {
  const c10::NoGradGuard no_grad;
  FreeAll();
  if (!has_all) return;
  for (const std::shared_ptr<PagedUnit>& unit : units_) {
    unit->Assemble(at::empty({unit->bytes()}, at::kByte));
    present_.push_back({unit.get(), /*pooled=*/false});
  }
  assembled_ = true;
}

void PagedMemory::BeginShards() {
  FreeAll();
  shards_only_ = true;
}

absl::Status PagedMemory::AfterStep() {
  FreeAll();
  training_ = false;
  order_.NextStep();
  return std::exchange(written_, absl::OkStatus());
}

}  // namespace lockstep::fsdp::internal
