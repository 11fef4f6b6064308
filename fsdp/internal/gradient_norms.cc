#include "lockstep/fsdp/internal/gradient_norms.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <map>
#include <numeric>

#include "lockstep/base/status.h"

namespace lockstep::fsdp::internal {

absl::StatusOr<std::vector<at::Tensor>> GradientNorms::Compute(const ShardReducer& reducer,
                                                               const std::vector<at::Tensor>& parameters,
                                                               double norm_type) const {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> own;
  std::map<const at::TensorImpl*, std::pair<size_t, at::ScalarType>> places;  // in `own`, and the gradients' dtypes
  for (size_t u = 0; u < reducer.unit_count(); ++u) {
    for (const NamedTensor& parameter : reducer.unit(u).parameters)
      places.emplace(parameter.tensor.unsafeGetTensorImpl(), std::pair(places.size(), reducer.unit(u).shard_dtype));
    LOCKSTEP_RETURN_IF_ERROR(ComputeUnit(reducer, u, norm_type, own));
  }
  // Each number is of one rank and 0 on the others, so that the sum is exact.
  const c10::Device device = parameters[0].device();
  const auto number = [&](double value) { return at::full({}, value, at::TensorOptions(at::kDouble).device(device)); };
  const at::Tensor zero = number(0), one = number(1);
  std::vector<at::Tensor> numbers;  // a norm, and 1 if there is one
  for (const at::Tensor& norm : own) {
    numbers.push_back(norm.defined() ? norm.to(at::kDouble) : zero);
    numbers.push_back(norm.defined() ? one : zero);
  }
  const at::Tensor all = at::stack(numbers);
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(all));
  LOCKSTEP_RETURN_IF_ERROR(group_->Synchronize(device));
  const at::Tensor on_host = all.cpu();
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : parameters) {
    const auto place = places.find(parameter.unsafeGetTensorImpl());
    if (place == places.end()) continue;
    const size_t first = 2 * place->second.first;
    if (static_cast<const double*>(on_host.const_data_ptr())[first + 1] == 0) continue;
    norms.push_back(all.select(0, static_cast<int64_t>(first)).to(c10::toRealValueType(place->second.second)));
  }
  return norms;
}

absl::StatusOr<std::vector<GradientNorms::Parts>> GradientNorms::Exchange(const ShardReducer& reducer, size_t u) const {
  const ShardedUnit& unit = reducer.unit(u);
  const int rank = group_->rank();
  std::vector<Parts> parts(unit.parameters.size());
  std::vector<int> owners(unit.parameters.size(), 0);  // of the first elements
  std::vector<Piece> pieces;
  for (const Piece& piece : unit.layout.pieces) {
    if (piece.is_second) continue;
    pieces.push_back(piece);
    if (piece.begin == 0) owners[piece.parameter] = piece.rank;
  }
  std::vector<std::vector<at::Tensor>> to(group_->size());
  std::vector<int64_t> sent(group_->size(), 0), received(group_->size(), 0);
  bool any_is_cut = false;
  for (const Piece& piece : pieces) {
    const int owner = owners[piece.parameter];
    any_is_cut |= piece.rank != owner;
    const at::Tensor gradient = piece.rank == rank ? reducer.GradientOf(u, piece) : at::Tensor();
    if (!gradient.defined()) continue;
    if (owner == rank) {
      parts[piece.parameter].emplace(piece.begin, gradient);
    } else {
      to[owner].push_back(gradient);
      sent[owner] += gradient.numel();
    }
  }
  if (!any_is_cut) return parts;
  std::vector<Piece> expected;  // in the order of ranks
  for (const Piece& piece : pieces) {
    // All ranks have a part of a gradient, or none has.
    if (piece.rank == rank || owners[piece.parameter] != rank || parts[piece.parameter].empty()) continue;
    expected.push_back(piece);
    received[piece.rank] += piece.end - piece.begin;
  }
  const at::TensorOptions options = at::TensorOptions(unit.shard_dtype).device(unit.parameters[0].tensor.device());
  std::vector<at::Tensor> inputs{at::empty({0}, options)};
  for (const std::vector<at::Tensor>& gradients : to) inputs.insert(inputs.end(), gradients.begin(), gradients.end());
  const at::Tensor output = at::empty({std::accumulate(received.begin(), received.end(), int64_t{0})}, options);
  LOCKSTEP_RETURN_IF_ERROR(group_->AllToAllSingle(output, at::cat(inputs), received, sent));
  int64_t place = 0;
  for (const Piece& piece : expected) {
    parts[piece.parameter].emplace(piece.begin, output.narrow(0, place, piece.end - piece.begin));
    place += piece.end - piece.begin;
  }
  return parts;
}

absl::Status GradientNorms::ComputeUnit(const ShardReducer& reducer, size_t u, double norm_type,
                                        std::vector<at::Tensor>& own) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto parts, Exchange(reducer, u));
  for (size_t k = 0; k < parts.size(); ++k) {
    own.emplace_back();
    if (parts[k].empty()) continue;
    const at::Tensor& parameter = reducer.unit(u).parameters[k].tensor;
    std::vector<at::Tensor> in_order;
    for (const auto& [begin, part] : parts[k]) in_order.push_back(part);
    const at::Tensor flat = in_order.size() == 1 ? in_order[0] : at::cat(in_order);
    const at::Tensor gradient = flat.as_strided(parameter.sizes(), parameter.strides());
    own.back() = at::_foreach_norm({gradient}, norm_type)[0];
  }
  return absl::OkStatus();
}

}  // namespace lockstep::fsdp::internal
