#include "lockstep/fsdp/internal/paged_memory.h"

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

absl::StatusOr<std::unique_ptr<ParameterMemory>> PagedMemory::Create(const Mesh* mesh,
                                                                     const std::vector<ShardedUnit>& units,
                                                                     const Options& options, bool keeps) {
  std::vector<std::string> names;
  int64_t bytes = 1;
  std::string shared;
  for (const ShardedUnit& unit : units) {
    names.push_back(unit.parameters[0].name);
    bytes = std::max({bytes, unit.chunk_bytes(),
                      mesh->shard_group()->size() * unit.layout.share * unit.parameters[0].tensor.element_size()});
    for (const NamedTensor& parameter : unit.parameters) {
      if (!keeps && shared.empty() && IsShared(parameter.tensor)) shared = parameter.name;
    }
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, mesh->group()->AllGatherBytes(shared));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("on rank ", rank, " another tensor holds the memory of ", all[rank],
                     ", such as a view or a state dict, or it is a view itself: expected memory of its own"));
  }
  std::unique_ptr<PagedMemory> memory(new PagedMemory(mesh, bytes, units[0].parameters[0].tensor.device(),
                                                      std::move(names), options.whole_units,
                                                      options.prefetch && options.whole_units > 1));
  absl::Status status;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { status = memory->Distribute(units, keeps, options.debug); }));
  LOCKSTEP_RETURN_IF_ERROR(status);
  return std::unique_ptr<ParameterMemory>(std::move(memory));
}

absl::Status PagedMemory::Distribute(const std::vector<ShardedUnit>& units, bool keeps, bool debug) {
  for (size_t i = 0; i < units.size(); ++i) {
    units_.push_back(std::make_shared<PagedUnit>(mesh_, units[i]));
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

std::string PagedMemory::Who() const {
  return absl::StrCat("rank ", mesh_->group()->rank(), ": fully sharded training");
}

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
  prefetch_.BeginForward(c10::GradMode::is_enabled());
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
    if (full_ || assembled_ || !prefetch_.Switches(index)) return;
  }
  const bool present = !present_.empty() && present_.back().unit == &unit;
  if (!present && !training_ && evaluations_ == 0) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(Who(), ": the unit of ", unit.name(),
                     " is used outside of forward and backward: use it while all ranks have ", "FullParameters()")));
  }
  const c10::InferenceMode no_inference(false);
  const c10::NoGradGuard no_grad;
  prefetch_.Uses(index);
  ThrowIfError(mesh_->Spread(Settle(&unit)));
  if (!present) ThrowIfError(mesh_->Spread(Gather(unit, index)));
  prefetch_.Plan(index, [this](size_t other) { return Has(other); });
}

absl::Status PagedMemory::Gather(PagedUnit& unit, size_t index) {
  const auto is_unit = [&](const Ahead& ahead) { return ahead.unit == &unit; };
  const auto found = std::find_if(ahead_.begin(), ahead_.end(), is_unit);
  if (found != ahead_.end()) {
    PagedUnit::Flight flight = std::move(found->flight);
    ahead_.erase(found);
    LOCKSTEP_RETURN_IF_ERROR(unit.FinishGather(std::move(flight), buffers()));
    present_.push_back({&unit, /*pooled=*/true});
    return absl::OkStatus();
  }
  DropAhead();
  MakeRoom(&unit);
  LOCKSTEP_RETURN_IF_ERROR(prefetch_.AgreeToGather(index, [this](size_t other) { return Has(other); }));
  LOCKSTEP_RETURN_IF_ERROR(unit.Gather(buffers().Take(), buffers()));
  present_.push_back({&unit, /*pooled=*/true});
  return Settle(&unit);
}

// Gathers ahead what the ranks have agreed on. Must be called before they agree on more. `unit` stays.
absl::Status PagedMemory::Settle(const PagedUnit* unit) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t agreed, prefetch_.TakeAgreed());
  if (agreed < 0) return absl::OkStatus();
  MakeRoom(unit);
  ahead_.push_back({units_[agreed].get(), units_[agreed]->StartGather(buffers())});
  return absl::OkStatus();
}

// The guess was wrong, or the values are about to change. All ranks have gathered them.
void PagedMemory::DropAhead() {
  for (Ahead& ahead : std::exchange(ahead_, {})) {
    // After an error the group has failed, and the call may still have the buffer.
    if (ahead.flight.work.Wait().ok()) buffers().Give(std::move(ahead.flight.buffer));
  }
}

bool PagedMemory::Has(size_t unit) const {
  const PagedUnit* const which = units_[unit].get();
  return which->present() ||
         std::any_of(ahead_.begin(), ahead_.end(), [&](const Ahead& ahead) { return ahead.unit == which; });
}

// For one more unit. `unit` and those that the operator uses stay.
void PagedMemory::MakeRoom(const PagedUnit* unit) {
  const std::vector<Present> present = present_;
  for (const Present& oldest : present) {
    const auto whole = static_cast<int>(present_.size() + ahead_.size());
    if (whole >= whole_units_ && oldest.unit != unit) FreeIfUnused(*oldest.unit);
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
  DropAhead();
  const std::vector<Present> present = present_;
  for (const Present& one : present) FreeIfUnused(*one.unit);
}

absl::Status PagedMemory::BeforeReduction(size_t unit, bool brings) {
  using Act = UnitOrder::Act;
  if (brings) {
    prefetch_.Reduces(unit);
    LOCKSTEP_RETURN_IF_ERROR(Settle(nullptr));
    return prefetch_.AgreeToReduce(unit, [this](size_t other) { return Has(other); });
  }
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t agreed, prefetch_.TakeAgreed());
    if (agreed >= 0) LOCKSTEP_RETURN_IF_ERROR(units_[agreed]->JoinGather(buffers()));
    LOCKSTEP_ASSIGN_OR_RETURN(const UnitOrder::Event event, prefetch_.Agree(Act::kFollow, unit));
    if (event.act == Act::kUse) continue;
    if (event.act == Act::kFollow) return absl::OkStatus();  // no rank of the shard group has a backward
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
  LOCKSTEP_RETURN_IF_ERROR(Settle(nullptr));
  LOCKSTEP_RETURN_IF_ERROR(prefetch_.Agree(UnitOrder::Act::kFull).status());
  absl::Status status;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(Who(), [&] { status = GatherAll(); }));
  if (status.ok()) status = mesh_->shard_group()->Synchronize(device_);  // if a rank died, the values are undefined
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
    LOCKSTEP_RETURN_IF_ERROR(unit->Gather(unit->NewMemory(), buffers()));
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
    unit->Assemble(unit->NewMemory());
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
  prefetch_.EndStep();
  return std::exchange(written_, absl::OkStatus());
}

}  // namespace lockstep::fsdp::internal
