#include "lockstep/fsdp/internal/module_units.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/fsdp/internal/unit_plan.h"

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

absl::Status CheckParameter(const NamedTensor& parameter, Shard shard) {
  const at::Tensor& tensor = parameter.tensor;
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

using ShardsByName = std::map<std::string, std::vector<const KeptShard*>>;

ShardsByName ByName(const KeptShards& kept) {
  ShardsByName shards;
  for (const KeptShard& shard : kept.shards) shards[shard.parameter].push_back(&shard);
  return shards;
}

// Gives the unit its shards, and returns their places.
std::vector<KeptPiece> TakeShards(ShardsByName& all, ShardedUnit& unit) {
  std::vector<KeptPiece> pieces;
  for (size_t k = 0; k < unit.parameters.size(); ++k) {
    const auto place = static_cast<int>(k);
    for (const KeptShard* shard : all[unit.parameters[k].name]) {
      pieces.push_back({place, shard->begin, shard->end, shard->owner, shard->second});
      unit.kept[{place, shard->begin}] = shard->tensor;
    }
  }
  return pieces;
}

// The shards were made of the parameters that were trained then.
absl::Status CheckKept(const std::vector<ShardedUnit>& trained, const KeptShards& kept) {
  std::map<std::string, int64_t> missing;
  for (const ShardedUnit& unit : trained) {
    for (const NamedTensor& parameter : unit.parameters) missing[parameter.name] += parameter.tensor.numel();
  }
  for (const KeptShard& shard : kept.shards) missing[shard.parameter] -= shard.end - shard.begin;
  for (const auto& [name, elements] : missing) {
    if (elements == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": whether it requires gradients, or its size, changed after its shards were made"));
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const NamedTensor& parameter, const comm::ProcessGroup& group, const Options& options,
                         bool keeps) {
  const c10::Device device = parameter.tensor.device();
  const std::string found = absl::StrCat(parameter.name, " on ", device.str());
  if (!GroupAccess::HasBackend(group, device.type())) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected parameters on a device for which the group has a backend, found ", found));
  }
  if (device.is_cpu()) return absl::OkStatus();
  if (!GroupAccess::HasBackend(group, c10::kCPU)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a group with a backend for the CPU too, by which the ranks agree on units, such as "
                     "\"cpu:gloo,cuda:nccl\", found none, with ",
                     found));
  }
  const char* const needs_cpu = options.residency == Residency::kSharedPages ? "residency kSharedPages"
                                : options.debug                              ? "debug"
                                : keeps                                      ? "an elastic::ShardedModel"
                                                                             : nullptr;
  if (!needs_cpu) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(needs_cpu, ": expected parameters on the CPU, found ", found));
}

absl::Status CheckSameDevice(const NamedTensor& parameter, const NamedTensor& first) {
  if (parameter.tensor.device() == first.tensor.device()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected all parameters on ", first.tensor.device().str(), ", as ",
                                                 first.name, ", found ", parameter.name, " on ",
                                                 parameter.tensor.device().str()));
}

}  // namespace

absl::StatusOr<std::vector<NamedTensor>> ParametersOf(const torch::nn::Module& module, const comm::ProcessGroup& group,
                                                      const Options& options, bool keeps) {
  std::vector<NamedTensor> parameters;
  std::set<const at::TensorImpl*> seen;
  std::set<const void*> storages;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    parameters.push_back({item.key(), tensor});
    LOCKSTEP_RETURN_IF_ERROR(CheckParameter(parameters.back(), options.shard));
    LOCKSTEP_RETURN_IF_ERROR(parameters.size() == 1 ? CheckDevice(parameters[0], group, options, keeps)
                                                    : CheckSameDevice(parameters.back(), parameters[0]));
    if (!keeps && tensor.numel() > 0 && !storages.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      return absl::InvalidArgumentError(absl::StrCat(item.key(), " shares its memory with another parameter"));
    }
  }
  return parameters;
}

absl::StatusOr<ModuleUnits> UnitsOf(const std::vector<NamedTensor>& parameters, int ranks, int replicas,
                                    const Options& options, const KeptShards* kept) {
  std::vector<ParameterInfo> infos;
  for (const NamedTensor& parameter : parameters) infos.push_back(InfoOf(parameter));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto plan, PlanUnits(infos, options));
  ShardsByName shards = kept ? ByName(*kept) : ShardsByName();
  ModuleUnits units;
  for (const std::vector<int>& members : plan) {
    const bool trained = infos[members[0]].trained;
    ShardedUnit& unit = (trained ? units.trained : units.frozen).emplace_back();
    std::vector<ParameterInfo> of_unit;
    for (const int member : members) {
      unit.parameters.push_back(parameters[member]);
      of_unit.push_back(infos[member]);
    }
    unit.shard_dtype = unit.reduce_dtype = unit.parameters[0].tensor.scalar_type();
    if (const auto& mixed = options.mixed_precision)
      unit.reduce_dtype = mixed->reduce_dtype.value_or(mixed->param_dtype);
    unit.layout = kept && trained ? LayOut(of_unit, ranks, TakeShards(shards, unit))
                                  : LayOut(of_unit, ranks, options.shard, replicas);
    const auto size = static_cast<int64_t>(c10::elementSize(unit.reduce_dtype));
    CutIntoChunks(std::max<int64_t>(options.unit_bytes / size, 1), replicas, &unit.layout);
  }
  if (units.trained.empty()) return absl::InvalidArgumentError("no parameter requires gradients");
  if (kept) LOCKSTEP_RETURN_IF_ERROR(CheckKept(units.trained, *kept));
  return units;
}

}  // namespace lockstep::fsdp::internal
