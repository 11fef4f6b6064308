#include "lockstep/fsdp/internal/sharded_module.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/seed.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/fsdp/internal/paged_memory.h"
#include "lockstep/fsdp/internal/shared_pages.h"

namespace lockstep::fsdp::internal {
namespace {

using comm::internal::GroupAccess;

ParameterInfo InfoOf(const NamedTensor& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  return {parameter.name,
          tensor.numel(),
          tensor.dim() == 0 ? 1 : tensor.size(0),
          static_cast<int>(tensor.scalar_type()),
          tensor.element_size(),
          tensor.requires_grad()};
}

constexpr const char* kResidencies[] = {"kAuto", "kSharedPages", "kPaged"};

std::string TextOf(const Options& options) {
  return absl::StrCat("units [", absl::StrJoin(options.units, ", "), "], unit_bytes ", options.unit_bytes, ", shard ",
                      options.shard == Shard::kRows ? "kRows" : "kElements", ", residency ",
                      kResidencies[static_cast<int>(options.residency)], ", whole_units ", options.whole_units,
                      ", virtual_ranks ", options.virtual_ranks, " and virtual_seed ", options.virtual_seed);
}

absl::Status CheckParameter(const NamedTensor& parameter, Shard shard) {
  const at::Tensor& tensor = parameter.tensor;
  if (!tensor.is_cpu()) {
    return absl::UnimplementedError(absl::StrCat(parameter.name, " is on ", tensor.device().str(),
                                                 ": fully sharded training needs parameters on the CPU"));
  }
  if (!tensor.is_floating_point() && !tensor.is_complex()) {
    return absl::UnimplementedError(absl::StrCat(parameter.name, " has the dtype ", c10::toString(tensor.scalar_type()),
                                                 ": expected floating-point or complex numbers"));
  }
  if (!tensor.is_leaf()) {
    return absl::InvalidArgumentError(absl::StrCat(parameter.name, " is the result of an operator, and not a leaf"));
  }
  if (!tensor.is_non_overlapping_and_dense()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parameter.name, ": expected a dense tensor, found gaps or overlaps"));
  }
  if (shard == Shard::kRows && !tensor.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(parameter.name, ": Shard::kRows needs contiguous parameters"));
  }
  return absl::OkStatus();
}

// Each parameter once, under its first name.
absl::StatusOr<std::vector<NamedTensor>> ParametersOf(const torch::nn::Module& module, Shard shard) {
  std::vector<NamedTensor> parameters;
  std::set<const at::TensorImpl*> seen;
  std::set<const void*> storages;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    parameters.push_back({item.key(), tensor});
    LOCKSTEP_RETURN_IF_ERROR(CheckParameter(parameters.back(), shard));
    if (tensor.numel() > 0 && !storages.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      return absl::InvalidArgumentError(absl::StrCat(item.key(), " shares its memory with another parameter"));
    }
  }
  return parameters;
}

bool IsTrained(const ShardedUnit& unit) { return unit.parameters[0].tensor.requires_grad(); }

// The trained units, and then the others.
absl::StatusOr<std::vector<ShardedUnit>> UnitsOf(const std::vector<NamedTensor>& parameters, int ranks,
                                                 const Options& options) {
  std::vector<ParameterInfo> infos;
  for (const NamedTensor& parameter : parameters) infos.push_back(InfoOf(parameter));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto plan, PlanUnits(infos, options));
  std::vector<ShardedUnit> units;
  for (const std::vector<int>& members : plan) {
    ShardedUnit& unit = units.emplace_back();
    std::vector<ParameterInfo> of_unit;
    for (const int member : members) {
      unit.parameters.push_back(parameters[member]);
      of_unit.push_back(infos[member]);
    }
    unit.layout = LayOut(of_unit, ranks, options.shard);
  }
  std::stable_partition(units.begin(), units.end(), IsTrained);
  return units;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedModule>> ShardedModule::Create(const torch::nn::Module& module,
                                                                     comm::ProcessGroup* group,
                                                                     const Options& options) {
  std::unique_ptr<ShardedModule> sharded(new ShardedModule(group, options));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(sharded->Build(module), absl::StrCat("rank ", group->rank(), ": fsdp::Wrap")));
  return sharded;
}

absl::StatusOr<std::unique_ptr<ParameterMemory>> ShardedModule::MakeMemory(
    const std::vector<ShardedUnit>& units) const {
  const bool shared = group_->size() == 1 || GroupAccess::TreeSumBackendOf(*group_, c10::DeviceType::CPU) != nullptr;
  const bool paged = options_.residency == Residency::kAuto ? !shared : options_.residency == Residency::kPaged;
  return paged ? PagedMemory::Create(group_, units, options_.whole_units) : SharedPages::Create(group_, units);
}

absl::Status ShardedModule::Build(const torch::nn::Module& module) {
  if (!GroupAccess::OnlyLockstepRanks(*group_)) return absl::InvalidArgumentError("expected a group of Lockstep ranks");
  absl::StatusOr<std::vector<NamedTensor>> parameters = ParametersOf(module, options_.shard);
  // The ranks compare first, so that a rank whose own check fails does not leave the others waiting.
  const std::string error = parameters.ok() ? "" : std::string(parameters.status().message());
  LOCKSTEP_RETURN_IF_ERROR(ddp::internal::CheckSameParameters(
      *group_, parameters.ok() ? *parameters : std::vector<NamedTensor>(), absl::StrCat(TextOf(options_), error)));
  LOCKSTEP_RETURN_IF_ERROR(parameters.status());
  if (Virtual() && options_.virtual_ranks < group_->size()) {
    return absl::InvalidArgumentError(absl::StrCat("virtual_ranks ", options_.virtual_ranks, ": expected at least ",
                                                   group_->size(), ", the number of ranks"));
  }
  if (options_.whole_units < 1) {
    return absl::InvalidArgumentError(absl::StrCat("whole_units ", options_.whole_units, ": expected 1 or more"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<ShardedUnit> units, UnitsOf(*parameters, group_->size(), options_));
  const auto frozen =
      std::find_if(units.begin(), units.end(), [](const ShardedUnit& unit) { return !IsTrained(unit); });
  if (frozen == units.begin()) return absl::InvalidArgumentError("no parameter requires gradients");
  for (const NamedTensor& parameter : *parameters) parameters_.push_back(parameter.tensor);
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) buffers.push_back(buffer);
  }
  buffers_.emplace(std::move(buffers));
  LOCKSTEP_RETURN_IF_ERROR(buffers_->Broadcast(*group_));
  LOCKSTEP_ASSIGN_OR_RETURN(memory_, MakeMemory(units));
  frozen_.assign(frozen, units.end());
  units.erase(frozen, units.end());
  AddShards(units);
  const int leaves = Virtual() ? options_.virtual_ranks : group_->size();
  return TorchStatus(
      "", [&] { reducer_ = std::make_unique<ShardReducer>(group_, memory_.get(), leaves, std::move(units)); });
}

void ShardedModule::AddShards(const std::vector<ShardedUnit>& units) {
  for (size_t u = 0; u < units.size(); ++u) {
    for (const Piece& piece : units[u].layout.pieces) {
      if (piece.rank != group_->rank()) continue;
      const NamedTensor& parameter = units[u].parameters[piece.parameter];
      at::Tensor shard = memory_->Shard(u, piece);
      if (options_.shard == Shard::kRows && parameter.tensor.dim() > 0) {
        std::vector<int64_t> shape = parameter.tensor.sizes().vec();
        shape[0] = -1;
        shard = shard.view(shape);
      }
      shards_.push_back(shard.detach().set_requires_grad(true));
      shard_names_.push_back(parameter.name);
      pieces_.push_back({u, piece});
    }
  }
}

std::vector<const ShardedUnit*> ShardedModule::units() const {
  std::vector<const ShardedUnit*> units;
  for (size_t u = 0; u < reducer_->unit_count(); ++u) units.push_back(&reducer_->unit(u));
  for (const ShardedUnit& unit : frozen_) units.push_back(&unit);
  return units;
}

std::string ShardedModule::Who() const { return absl::StrCat("rank ", group_->rank(), ": fully sharded training"); }

void ShardedModule::CheckBeforeForward() const {
  ThrowIfError(group_->failure());
  ThrowIfError(left_early_);
  if (reducer_->running()) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(Who(), ": the last backward did not end")));
  }
  if (const NamedTensor* replaced = reducer_->Replaced()) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(Who(), ": the dtype or device of ", replaced->name, " changed after fsdp::Wrap")));
  }
  if (Virtual() && virtual_ranks_.empty() && c10::GradMode::is_enabled()) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(Who(), ": with Options::virtual_ranks, forward must be in a loop over VirtualRanks()")));
  }
}

absl::Status ShardedModule::Step(torch::optim::Optimizer& optimizer) {
  std::set<const at::TensorImpl*> own;
  for (const at::Tensor& shard : shards_) own.insert(shard.unsafeGetTensorImpl());
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (own.count(parameter.unsafeGetTensorImpl()) != 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          Who(), ": Step: the optimizer has a parameter that is not one of shards(); make it of shards()"));
    }
  }
  return Step([&] { optimizer.step(); });
}

absl::Status ShardedModule::Step(const std::function<void()>& step) {
  if (full_) return absl::FailedPreconditionError(absl::StrCat(Who(), ": Step: FullParameters() are still open"));
  absl::Status status = PrepareGradients();
  if (absl::IsFailedPrecondition(status)) return status;
  if (status.ok()) {
    status = TorchStatus(absl::StrCat(Who(), ": the optimizer's step"), step);
    // The other ranks would wait for this one, whose shards are half stepped.
    if (!status.ok()) group_->Abort(status);
  }
  for (const at::Tensor& shard : shards_) shard.mutable_grad().reset();
  reducer_->Clear();
  virtual_ranks_.clear();
  prepared_ = 0;
  LOCKSTEP_RETURN_IF_ERROR(status);
  return memory_->AfterStep();
}

absl::Status ShardedModule::PrepareGradients() {
  if (prepared_ > 0 && prepared_ == reducer_->reduced()) return absl::OkStatus();
  const int expected = Virtual() ? static_cast<int>(virtual_ranks_.size()) : 1;
  if (reducer_->running() || reducer_->reduced() < std::max(expected, 1)) {
    return absl::FailedPreconditionError(absl::StrCat(Who(), ": no backward has ended since the last step"));
  }
  LOCKSTEP_RETURN_IF_ERROR(reducer_->Wait());
  LOCKSTEP_RETURN_IF_ERROR(buffers_->Broadcast(*group_));
  for (size_t i = 0; i < shards_.size(); ++i) {
    const at::Tensor gradient = reducer_->GradientOf(pieces_[i].unit, pieces_[i].piece);
    shards_[i].mutable_grad() = gradient.defined() ? gradient.view(shards_[i].sizes()) : gradient;
  }
  prepared_ = reducer_->reduced();
  return absl::OkStatus();
}

absl::StatusOr<double> ShardedModule::ClipGradNorm(double max_norm, double norm_type) {
  if (!(norm_type >= 0) || !(max_norm >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Who(), ": ClipGradNorm: expected a max_norm and a norm_type of at least 0, found ", max_norm,
                     " and ", norm_type));
  }
  absl::StatusOr<double> norm;
  const absl::Status thrown =
      TorchStatus(absl::StrCat(Who(), ": ClipGradNorm"), [&] { norm = Clip(max_norm, norm_type); });
  return thrown.ok() ? norm : thrown;
}

absl::Status ShardedModule::BeginFull(bool write) {
  if (full_) return absl::FailedPreconditionError(absl::StrCat(Who(), ": FullParameters() are open already"));
  if (reducer_->running()) {
    return absl::FailedPreconditionError(absl::StrCat(Who(), ": FullParameters() in a backward"));
  }
  LOCKSTEP_RETURN_IF_ERROR(memory_->BeginFull(write));
  full_ = true;
  return absl::OkStatus();
}

void ShardedModule::EndFull() {
  full_ = false;
  const absl::Status status = memory_->EndFull();
  if (!status.ok()) group_->Abort(status);
}

absl::StatusOr<double> ShardedModule::Clip(double max_norm, double norm_type) {
  LOCKSTEP_RETURN_IF_ERROR(PrepareGradients());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> norms, norms_.Compute(*reducer_, parameters_, norm_type));
  const c10::NoGradGuard no_grad;
  const at::Tensor norm = norms.empty() ? at::zeros({}) : at::linalg_vector_norm(at::stack(norms), norm_type);
  // Python divides a number by a tensor as reciprocal times number.
  const at::Tensor factor = (norm + 1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (const at::Tensor& shard : shards_) {
    if (shard.grad().defined()) shard.mutable_grad().mul_(factor);
  }
  return norm.item<double>();
}

void ShardedModule::BeginVirtualStep(int64_t step) {
  ThrowIfError(std::exchange(left_early_, absl::OkStatus()));
  step_ = step;
  virtual_ranks_.clear();
  for (int round = 0; round < reducer_->rounds(); ++round) {
    if (reducer_->LeafOf(round) >= 0) virtual_ranks_.push_back(reducer_->LeafOf(round));
  }
}

void ShardedModule::BeginVirtualRank(size_t place) {
  if (!Virtual()) return;
  buffers_->BeginVirtualRank(place, virtual_ranks_.size());
  reducer_->SetRound(static_cast<int>(place));
  at::manual_seed(SeedOf(options_.virtual_seed, step_, virtual_ranks_[place]));
}

void ShardedModule::EndVirtualRank(size_t place) {
  if (!Virtual()) return;
  if (reducer_->reduced() != static_cast<int>(place) + 1) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(Who(), ": virtual rank ", virtual_ranks_[place],
                                                            " has run ", reducer_->reduced() - static_cast<int>(place),
                                                            " backward passes, expected 1")));
  }
  buffers_->EndVirtualRank(place, virtual_ranks_.size());
  const int next = static_cast<int>(place) + 1;
  if (next == static_cast<int>(virtual_ranks_.size()) && next < reducer_->rounds()) reducer_->SkipRound(next);
}

void ShardedModule::LeaveVirtualStep(bool thrown) {
  if (!Virtual() || thrown || reducer_->reduced() == static_cast<int>(virtual_ranks_.size())) return;
  left_early_ = absl::FailedPreconditionError(
      absl::StrCat(Who(), ": the loop over VirtualRanks() of step ", step_, " was left early"));
}

}  // namespace lockstep::fsdp::internal
