#include "lockstep/fsdp/internal/sharded_parameters.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/fsdp/internal/flat_boxes.h"

namespace lockstep::fsdp::internal {
namespace {

// The dimensions of a dense tensor in the order of its memory, the slowest first.
std::vector<int64_t> DimensionsInMemory(const at::Tensor& tensor) {
  std::vector<int64_t> dimensions(tensor.dim());
  std::iota(dimensions.begin(), dimensions.end(), 0);
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  return dimensions;
}

}  // namespace

const ShardedParameter::Part* ShardedParameter::PartOf(int rank) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.rank == rank; });
  return found == parts.end() ? nullptr : &*found;
}

std::vector<ShardedParameter> ShardedParametersOf(const ShardedModule& module) {
  std::map<const at::TensorImpl*, size_t> order;
  for (const at::Tensor& parameter : module.parameters()) order.emplace(parameter.unsafeGetTensorImpl(), order.size());
  std::map<size_t, ShardedParameter> parameters;
  const std::vector<const ShardedUnit*> units = module.units();
  const Mesh& mesh = module.mesh();
  size_t shards = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    std::vector<ShardedParameter*> of_unit;
    for (const NamedTensor& parameter : units[u]->parameters) {
      ShardedParameter& added = parameters[order.at(parameter.tensor.unsafeGetTensorImpl())];
      added.name = parameter.name;
      added.tensor = parameter.tensor;
      added.dtype = units[u]->shard_dtype;
      of_unit.push_back(&added);
    }
    for (const Piece& piece : units[u]->layout.pieces) {
      ShardedParameter& parameter = *of_unit[piece.parameter];
      for (int replica = 0; replica < mesh.replicas(); ++replica)
        parameter.parts.push_back({mesh.RankOf(replica, piece.rank), piece.begin, piece.end, replica});
      if (piece.rank != mesh.place()) continue;
      parameter.shard = shards < module.shards().size() ? module.shards()[shards++] : module.memory().Shard(u, piece);
    }
  }
  std::vector<ShardedParameter> sorted;
  for (auto& [place, parameter] : parameters) sorted.push_back(std::move(parameter));
  return sorted;
}

std::vector<checkpoint::Shard> PartsOf(const at::Tensor& flat, int64_t begin, const at::Tensor& parameter) {
  const std::vector<int64_t> dimensions = DimensionsInMemory(parameter);
  std::vector<int64_t> sizes, back(dimensions.size());
  for (size_t d = 0; d < dimensions.size(); ++d) {
    sizes.push_back(parameter.size(dimensions[d]));
    back[dimensions[d]] = static_cast<int64_t>(d);
  }
  std::vector<checkpoint::Shard> parts;
  for (const FlatBox& found : BoxesOf(sizes, begin, begin + flat.numel())) {
    const std::vector<int64_t>& box = found.box.sizes;
    const int64_t numel = std::accumulate(box.begin(), box.end(), int64_t{1}, std::multiplies<int64_t>());
    checkpoint::Shard& part = parts.emplace_back();
    part.tensor = flat.narrow(0, found.begin - begin, numel).view(box).permute(back);
    for (const int64_t d : back) part.offsets.push_back(found.box.offsets[d]);
  }
  return parts;
}

at::Tensor InMemoryOrder(const at::Tensor& whole, const at::Tensor& parameter) {
  at::Tensor ordered = whole.detach();
  if (ordered.strides() != parameter.strides()) {
    ordered = at::empty_strided(parameter.sizes(), parameter.strides(), whole.options().requires_grad(false));
    ordered.copy_(whole.detach());
  }
  return ordered.as_strided({ordered.numel()}, {1});
}

absl::StatusOr<std::vector<std::vector<size_t>>> PlacesOf(const torch::optim::Optimizer& optimizer,
                                                          const std::vector<ShardedParameter>& parameters) {
  std::map<const at::TensorImpl*, size_t> shards;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].shard.defined()) shards.emplace(parameters[i].shard.unsafeGetTensorImpl(), i);
  }
  std::vector<std::vector<size_t>> places;
  for (const auto& group : optimizer.param_groups()) {
    std::vector<size_t>& of_group = places.emplace_back();
    for (size_t i = 0; i < group.params().size(); ++i) {
      const auto found = shards.find(group.params()[i].unsafeGetTensorImpl());
      if (found == shards.end()) {
        return absl::InvalidArgumentError(absl::StrCat("the optimizer's param_groups[", places.size() - 1,
                                                       "][\"params\"][", i,
                                                       "] is not one of shards(); make the optimizer of shards()"));
      }
      of_group.push_back(found->second);
    }
  }
  return places;
}

}  // namespace lockstep::fsdp::internal
