#include "lockstep/fsdp/internal/gradient_norms.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::fsdp::internal {

absl::Status GradientNorms::Allocate(const ShardReducer& reducer) {
  if (memory_.defined()) return absl::OkStatus();
  int64_t bytes = 1;
  for (size_t u = 0; u < reducer.unit_count(); ++u) {
    const ShardedUnit& unit = reducer.unit(u);
    bytes = std::max<int64_t>(bytes, unit.layout.numel * unit.parameters[0].tensor.element_size());
  }
  if (group_->size() == 1) {
    memory_ = at::empty({bytes}, at::kByte);
    return absl::OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(memory_, comm::internal::GroupAccess::AllocateCommon(*group_, bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<at::Tensor>> GradientNorms::Compute(const ShardReducer& reducer,
                                                               const std::vector<at::Tensor>& parameters,
                                                               double norm_type) {
  const c10::NoGradGuard no_grad;
  LOCKSTEP_RETURN_IF_ERROR(Allocate(reducer));
  std::vector<Own> own;
  std::map<const at::TensorImpl*, size_t> places;  // in `own`
  for (size_t u = 0; u < reducer.unit_count(); ++u) {
    for (const NamedTensor& parameter : reducer.unit(u).parameters)
      places.emplace(parameter.tensor.unsafeGetTensorImpl(), places.size());
    LOCKSTEP_RETURN_IF_ERROR(ComputeUnit(reducer, u, norm_type, own));
  }
  // Each number is of one rank and 0 on the others, so that the sum is exact.
  const at::Tensor all = at::zeros({static_cast<int64_t>(own.size()), 2}, at::kDouble);
  for (size_t i = 0; i < own.size(); ++i) {
    all[static_cast<int64_t>(i)][0] = own[i].norm;
    all[static_cast<int64_t>(i)][1] = own[i].has_gradient;
  }
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(all));
  std::vector<at::Tensor> norms;
  for (const at::Tensor& parameter : parameters) {
    const auto place = places.find(parameter.unsafeGetTensorImpl());
    if (place == places.end()) continue;
    const at::Tensor of_parameter = all[static_cast<int64_t>(place->second)];
    if (of_parameter[1].item<double>() == 0) continue;
    const at::ScalarType dtype = c10::toRealValueType(parameter.scalar_type());
    norms.push_back(at::scalar_tensor(of_parameter[0].item<double>(), dtype));
  }
  return norms;
}

absl::Status GradientNorms::ComputeUnit(const ShardReducer& reducer, size_t u, double norm_type,
                                        std::vector<Own>& own) const {
  const ShardedUnit& unit = reducer.unit(u);
  const at::Tensor memory = memory_.narrow(0, 0, unit.layout.numel * unit.parameters[0].tensor.element_size())
                                .view(unit.parameters[0].tensor.scalar_type());
  const size_t first = own.size();
  own.resize(first + unit.parameters.size());
  std::vector<int> to_compute;
  for (const Piece& piece : unit.layout.pieces) {
    if (piece.rank != group_->rank()) continue;
    const at::Tensor gradient = reducer.GradientOf(u, piece);
    if (!gradient.defined()) continue;
    memory.narrow(0, unit.layout.offsets[piece.parameter] + piece.begin, gradient.numel()).copy_(gradient);
    if (piece.begin == 0) to_compute.push_back(piece.parameter);
  }
  LOCKSTEP_RETURN_IF_ERROR(group_->Barrier());
  for (const int k : to_compute) {
    const at::Tensor& parameter = unit.parameters[k].tensor;
    const at::Tensor gradient =
        memory.narrow(0, unit.layout.offsets[k], parameter.numel())
            .as_strided(parameter.sizes(), parameter.strides(), memory.storage_offset() + unit.layout.offsets[k]);
    own[first + k] = {at::linalg_vector_norm(gradient, norm_type).item<double>(), 1};
  }
  return group_->Barrier();  // the next unit's gradients take the memory
}

}  // namespace lockstep::fsdp::internal
