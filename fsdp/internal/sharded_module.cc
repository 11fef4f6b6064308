#include "lockstep/fsdp/internal/sharded_module.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/fsdp/internal/gradient_norms.h"
#include "lockstep/fsdp/internal/module_units.h"
#include "lockstep/fsdp/internal/paged_memory.h"
#include "lockstep/fsdp/internal/parameter_key.h"
#include "lockstep/fsdp/internal/published_pages.h"
#include "lockstep/fsdp/internal/shared_pages.h"

namespace lockstep::fsdp::internal {
namespace {

using comm::internal::GroupAccess;

constexpr const char* kResidencies[] = {"kAuto", "kSharedPages", "kPaged"};
constexpr const char* kStrategies[] = {"kFullShard", "kHybridShard"};

std::string TextOf(const Options& options) {
  std::string mixed = "none";
  if (const auto& precision = options.mixed_precision) {
    mixed = absl::StrCat(c10::toString(precision->param_dtype), " and ",
                         c10::toString(precision->reduce_dtype.value_or(precision->param_dtype)));
  }
  return absl::StrCat("units [", absl::StrJoin(options.units, ", "), "], unit_bytes ", options.unit_bytes, ", shard ",
                      options.shard == Shard::kRows ? "kRows" : "kElements", ", sharding_strategy ",
                      kStrategies[static_cast<int>(options.sharding_strategy)], ", residency ",
                      kResidencies[static_cast<int>(options.residency)], ", whole_units ", options.whole_units,
                      options.prefetch ? "" : ", no prefetch", ", mixed_precision ", mixed, ", virtual_ranks ",
                      options.virtual_ranks, " and virtual_seed ", options.virtual_seed);
}

void SetDtype(const at::Tensor& parameter, at::ScalarType dtype, bool keeps_values) {
  const at::TensorOptions options = parameter.options().dtype(dtype).requires_grad(false);
  ReplaceData(parameter, keeps_values ? parameter.detach().to(dtype)
                                      : at::empty_strided(parameter.sizes(), parameter.strides(), options));
}

// The parameters' elements in the order of their memory, which they share.
std::vector<at::Tensor> FlatValues(const ShardedUnit& unit) {
  std::vector<at::Tensor> values;
  for (const NamedTensor& parameter : unit.parameters)
    values.push_back(parameter.tensor.detach().as_strided({parameter.tensor.numel()}, {1}));
  return values;
}

// The ranks must agree on the shards' places.
std::string TextOf(const KeptShards* kept) {
  if (!kept) return "";
  std::string text = ", shards:";
  for (const KeptShard& shard : kept->shards)
    absl::StrAppend(&text, " ", shard.begin, "-", shard.end, "@", shard.owner, ",", shard.second);
  return text;
}

std::string DeviceOf(const absl::StatusOr<std::vector<NamedTensor>>& parameters) {
  if (!parameters.ok() || parameters->empty() || (*parameters)[0].tensor.is_cpu()) return "";
  return absl::StrCat(", on ", c10::DeviceTypeName((*parameters)[0].tensor.device().type(), /*lower_case=*/true));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedModule>> ShardedModule::Create(const torch::nn::Module& module,
                                                                     comm::ProcessGroup* group, const Options& options,
                                                                     KeptShards* kept) {
  const std::string who = absl::StrCat("rank ", group->rank(), ": fsdp::Wrap");
  if (kept && kept->publish) return absl::FailedPreconditionError(absl::StrCat(who, ": the model is wrapped already"));
  std::unique_ptr<ShardedModule> sharded(new ShardedModule(module, group, options, kept));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(sharded->Build(module), who));
  if (kept) {
    kept->prepare_step = [module = sharded.get()] { return module->PrepareGradients(); };
    kept->publish = [module = sharded.get()] { return module->EndStep(absl::OkStatus()); };
    kept->assemble = [module = sharded.get()](bool has_all) { module->memory_->Assemble(has_all); };
  }
  return sharded;
}

ShardedModule::~ShardedModule() {
  if (!kept_) return;
  kept_->prepare_step = kept_->publish = nullptr;
  kept_->assemble = nullptr;
}

// An earlier group may have left the parameters in another dtype than those of a rank that is new.
void ShardedModule::RestoreDtypes() const {
  if (!kept_) return;
  for (const KeptShards::Parameter& parameter : kept_->parameters) {
    if (parameter.tensor.scalar_type() != parameter.dtype)
      SetDtype(parameter.tensor, parameter.dtype, /*keeps_values=*/!parameter.divided);
  }
}

// Gives the first rank of each shard group rank 0's values, for the others in it.
absl::Status ShardedModule::CopyToReplicas(const std::vector<ShardedUnit>& units) const {
  if (mesh_->replicas() == 1 || mesh_->place() != 0) return absl::OkStatus();
  std::vector<at::Tensor> values;
  for (const ShardedUnit& unit : units) {
    for (at::Tensor& flat : FlatValues(unit)) values.push_back(std::move(flat));
  }
  return comm::internal::BroadcastCoalesced(*mesh_->replicate_group(), values);
}

// This rank has its shards of rank 0's values.
absl::Status ShardedModule::MakeMasters(ShardedUnit& unit) const {
  const std::vector<at::Tensor> values = FlatValues(unit);
  LOCKSTEP_RETURN_IF_ERROR(comm::internal::BroadcastCoalesced(*group_, values));
  for (const Piece& piece : unit.layout.pieces) {
    if (piece.rank != mesh_->place()) continue;
    unit.kept[{piece.parameter, piece.begin}] =
        values[piece.parameter].narrow(0, piece.begin, piece.end - piece.begin).clone();
  }
  return absl::OkStatus();
}

// The parameters become copies of the shards in another dtype. `frozen`: the units that are in no memory.
absl::Status ShardedModule::ChangeDtypes(std::vector<ShardedUnit>& units,
                                         const std::vector<ShardedUnit>& frozen) const {
  const at::ScalarType dtype = options_.mixed_precision->param_dtype;
  for (const ShardedUnit& unit : units) {
    if (at::isFloatingType(dtype) && at::isFloatingType(unit.reduce_dtype) && at::isFloatingType(unit.shard_dtype))
      continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "mixed_precision: expected real floating-point dtypes, found ", c10::toString(dtype), ", ",
        c10::toString(unit.reduce_dtype), " and, of ", unit.parameters[0].name, ", ", c10::toString(unit.shard_dtype)));
  }
  for (ShardedUnit& unit : units) {
    if (!kept_) LOCKSTEP_RETURN_IF_ERROR(MakeMasters(unit));
    for (const NamedTensor& parameter : unit.parameters) SetDtype(parameter.tensor, dtype, /*keeps_values=*/false);
  }
  for (const ShardedUnit& unit : frozen) {
    for (const NamedTensor& parameter : unit.parameters) SetDtype(parameter.tensor, dtype, /*keeps_values=*/true);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ParameterMemory>> ShardedModule::MakeMemory(
    const std::vector<ShardedUnit>& units) const {
  if (kept_) {
    for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();  // of a step that was interrupted
  }
  comm::ProcessGroup& group = *mesh_->shard_group();
  const bool shared = parameters_[0].is_cpu() &&
                      (group.size() == 1 || GroupAccess::TreeSumBackendOf(group, c10::DeviceType::CPU) != nullptr);
  const bool paged = options_.residency == Residency::kAuto ? !shared : options_.residency == Residency::kPaged;
  const bool copies = kept_ || options_.mixed_precision;
  if (!copies) LOCKSTEP_RETURN_IF_ERROR(CopyToReplicas(units));
  if (paged) return PagedMemory::Create(mesh_.get(), units, options_, copies);
  return copies ? PublishedPages::Create(*mesh_, units) : SharedPages::Create(*mesh_, units);
}

absl::Status ShardedModule::Build(const torch::nn::Module& module) {
  if (!GroupAccess::OnlyLockstepRanks(*group_)) return absl::InvalidArgumentError("expected a group of Lockstep ranks");
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { RestoreDtypes(); }));
  absl::StatusOr<std::vector<NamedTensor>> parameters = ParametersOf(module, *group_, options_, kept_ != nullptr);
  // The ranks compare first, so that a rank whose own check fails does not leave the others waiting.
  const std::string error = parameters.ok() ? "" : std::string(parameters.status().message());
  LOCKSTEP_RETURN_IF_ERROR(
      ddp::internal::CheckSameParameters(*group_, parameters.ok() ? *parameters : std::vector<NamedTensor>(),
                                         absl::StrCat(TextOf(options_), TextOf(kept_), DeviceOf(parameters), error)));
  LOCKSTEP_RETURN_IF_ERROR(parameters.status());
  const bool is_virtual = options_.virtual_ranks > 0;
  if (is_virtual && options_.virtual_ranks < group_->size()) {
    return absl::InvalidArgumentError(absl::StrCat("virtual_ranks ", options_.virtual_ranks, ": expected at least ",
                                                   group_->size(), ", the number of ranks"));
  }
  if (options_.whole_units < 1) {
    return absl::InvalidArgumentError(absl::StrCat("whole_units ", options_.whole_units, ": expected 1 or more"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(mesh_, Mesh::Create(group_, options_.sharding_strategy));
  LOCKSTEP_ASSIGN_OR_RETURN(ModuleUnits units,
                            UnitsOf(*parameters, mesh_->shard_group()->size(), mesh_->replicas(), options_, kept_));
  for (const NamedTensor& parameter : *parameters) parameters_.push_back(parameter.tensor);
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) {
    if (buffer.defined()) buffers.push_back(buffer);
  }
  buffers_.emplace(std::move(buffers));
  LOCKSTEP_RETURN_IF_ERROR(buffers_->Broadcast(*group_));
  if (!kept_) frozen_ = std::exchange(units.frozen, {});  // frozen parameters of kept shards stay where they are
  std::vector<ShardedUnit> all = units.trained;
  all.insert(all.end(), frozen_.begin(), frozen_.end());
  if (options_.mixed_precision) {
    absl::Status status;
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { status = ChangeDtypes(all, units.frozen); }));
    LOCKSTEP_RETURN_IF_ERROR(status);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(memory_, MakeMemory(all));
  AddShards(units.trained);
  const int leaves = is_virtual ? options_.virtual_ranks : group_->size();
  return TorchStatus("", [&] {
    reducer_ = std::make_unique<ShardReducer>(mesh_.get(), memory_.get(), leaves, std::move(units.trained),
                                              [this, who = Who()] {
                                                if (!kept_) shards_.PromiseGradients(who);
                                              });
    virtual_step_.emplace(options_, Who(), &*buffers_, reducer_.get());
  });
}

void ShardedModule::AddShards(const std::vector<ShardedUnit>& units) {
  for (size_t u = 0; u < units.size(); ++u) {
    for (const Piece& piece : units[u].layout.pieces) {
      if (piece.rank != mesh_->place()) continue;
      const NamedTensor& parameter = units[u].parameters[piece.parameter];
      at::Tensor shard = memory_->Shard(u, piece);
      if (options_.shard == Shard::kRows && parameter.tensor.dim() > 0) {
        std::vector<int64_t> shape = parameter.tensor.sizes().vec();
        shape[0] = -1;
        shard = shard.view(shape);
      }
      shards_.Add(kept_ ? shard : shard.detach().set_requires_grad(true), parameter.name, u, piece);
    }
  }
}

at::Tensor ShardedModule::Input(const at::Tensor& tensor) const {
  const bool converts = options_.mixed_precision && tensor.defined() && tensor.is_floating_point();
  return converts ? tensor.to(options_.mixed_precision->param_dtype) : tensor;
}

std::vector<const ShardedUnit*> ShardedModule::units() const {
  std::vector<const ShardedUnit*> units;
  for (size_t u = 0; u < reducer_->unit_count(); ++u) units.push_back(&reducer_->unit(u));
  for (const ShardedUnit& unit : frozen_) units.push_back(&unit);
  return units;
}

std::string ShardedModule::Who() const { return absl::StrCat("rank ", group_->rank(), ": fully sharded training"); }

void ShardedModule::CheckBeforeForward(const torch::nn::Module& module) {
  ThrowIfError(mesh_->Spread(group_->failure()));
  if (c10::GradMode::is_enabled()) ThrowIfError(Annotate(changes_.Look(module), Who()));
  if (reducer_->running()) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(Who(), ": the last backward did not end")));
  }
  if (const NamedTensor* replaced = reducer_->Replaced()) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(Who(), ": the dtype or device of ", replaced->name, " changed after fsdp::Wrap")));
  }
  if (!kept_ && prepared_ > 0 && c10::GradMode::is_enabled()) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        Who(),
        ": after PrepareGradients() or ClipGradNorm(), net.Step() was not called; net.Step([] {}) discards them")));
  }
  virtual_step_->CheckForward();
}

absl::Status ShardedModule::Step(torch::optim::Optimizer& optimizer) {
  LOCKSTEP_RETURN_IF_ERROR(Annotate(shards_.CheckParametersOf(optimizer), absl::StrCat(Who(), ": Step")));
  return Step([&] { optimizer.step(); });
}

absl::Status ShardedModule::Step(const std::function<void()>& step) {
  if (full_) return absl::FailedPreconditionError(absl::StrCat(Who(), ": Step: FullParameters() are still open"));
  if (kept_)
    return absl::FailedPreconditionError(absl::StrCat(Who(), ": Step: a World keeps the shards: call its Commit()"));
  absl::Status status = PrepareGradients();
  if (absl::IsFailedPrecondition(status)) return status;
  if (status.ok()) {
    status = TorchStatus(absl::StrCat(Who(), ": the optimizer's step"), step);
    // The other ranks would wait for this one, whose shards are half stepped.
    if (!status.ok()) mesh_->Abort(status);
  }
  return EndStep(status);
}

absl::Status ShardedModule::EndStep(const absl::Status& stepped) {
  shards_.ResetGradients();
  reducer_->Clear();
  virtual_step_->Clear();
  prepared_ = 0;
  LOCKSTEP_RETURN_IF_ERROR(stepped);
  return memory_->AfterStep();
}

absl::Status ShardedModule::PrepareGradients() {
  if (prepared_ > 0 && prepared_ == reducer_->reduced()) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(virtual_step_->left_early());
  if (reducer_->running() || reducer_->reduced() < virtual_step_->expected()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Who(), ": no backward has ended since the last step", sync() ? "" : ", but those under NoSync"));
  }
  LOCKSTEP_RETURN_IF_ERROR(reducer_->Wait());
  LOCKSTEP_RETURN_IF_ERROR(mesh_->Spread(buffers_->Broadcast(*group_)));
  shards_.SetGradients(*reducer_);
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
  if (write && (kept_ || options_.mixed_precision)) {
    return absl::FailedPreconditionError(absl::StrCat(Who(), ": FullParameters: the parameters are copies of ",
                                                      kept_ ? "what a World keeps" : "shards of another dtype",
                                                      ", so they cannot be written to"));
  }
  LOCKSTEP_RETURN_IF_ERROR(memory_->BeginFull(write));
  full_ = true;
  return absl::OkStatus();
}

void ShardedModule::EndFull() {
  full_ = false;
  const absl::Status status = memory_->EndFull();
  if (!status.ok()) mesh_->Abort(status);
}

absl::StatusOr<double> ShardedModule::Clip(double max_norm, double norm_type) {
  LOCKSTEP_RETURN_IF_ERROR(PrepareGradients());
  const GradientNorms gradients(mesh_->shard_group());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> norms, gradients.Compute(*reducer_, parameters_, norm_type));
  const c10::NoGradGuard no_grad;
  const at::Tensor norm = norms.empty() ? at::zeros({}) : at::linalg_vector_norm(at::stack(norms), norm_type);
  // Python divides a number by a tensor as reciprocal times number.
  const at::Tensor factor = (norm + 1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (const at::Tensor& shard : shards()) {
    if (shard.grad().defined()) shard.mutable_grad().mul_(factor);
  }
  return norm.item<double>();
}

}  // namespace lockstep::fsdp::internal
