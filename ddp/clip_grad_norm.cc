#include "lockstep/ddp/clip_grad_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::ddp {
namespace {

using comm::internal::GroupAccess;

// Relative tolerance between two ranks' norms of equal gradients, which may be rounded differently on different
// processors. For half and bfloat16 it is four units in the last place.
double Tolerance(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 4.0 / 128 : dtype == at::kHalf ? 4.0 / 1024 : 1e-3;
}

// The number of ranks that an error lists.
constexpr int kListed = 8;

constexpr int64_t kNone = -1;

struct Gradients {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> places;  // of their parameters
};

// A rank's message to the others.
struct Report {
  double norm = 0;
  int64_t first_nonfinite = kNone;  // the place of a parameter
};

// One item for each device and dtype, in the order of a hash table as in Python. The order of the items determines the
// order in which norms are added.
std::vector<Gradients> GradientsOf(const std::vector<at::Tensor>& parameters) {
  Gradients all;
  std::vector<std::optional<at::Tensor>> listed;
  std::unordered_set<const at::TensorImpl*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].defined() || !parameters[i].grad().defined()) continue;
    if (!seen.insert(parameters[i].unsafeGetTensorImpl()).second) continue;
    all.tensors.push_back(parameters[i].grad());
    all.places.push_back(static_cast<int64_t>(i));
    listed.emplace_back(all.tensors.back());
  }
  if (listed.empty()) return {};
  std::vector<Gradients> groups;
  for (const auto& [key, group] :
       at::native::_group_tensors_by_first_tensors_device_and_dtype({listed}, /*with_indices=*/true)) {
    Gradients& gradients = groups.emplace_back();
    for (const size_t i : group.second) {
      gradients.tensors.push_back(all.tensors[i]);
      gradients.places.push_back(all.places[i]);
    }
  }
  return groups;
}

// Python does not compute the norm of a sparse gradient, or the largest absolute value of no elements.
bool PythonHasNorms(const std::vector<at::Tensor>& gradients, double norm_type) {
  return std::all_of(gradients.begin(), gradients.end(), [norm_type](const at::Tensor& gradient) {
    return gradient.layout() == at::kStrided && (gradient.numel() > 0 || !std::isinf(norm_type));
  });
}

at::Tensor NormOf(const at::Tensor& gradient, double norm_type) {
  const at::Tensor values = gradient.is_sparse() ? gradient.coalesce().values() : gradient;
  if (values.numel() == 0) return at::zeros({}, values.options());
  return at::linalg_vector_norm(values, norm_type);
}

// The device of the first parameter that has a gradient.
c10::Device FirstDevice(const std::vector<Gradients>& groups) {
  const auto first = std::min_element(groups.begin(), groups.end(), [](const Gradients& a, const Gradients& b) {
    return a.places.front() < b.places.front();
  });
  return first == groups.end() ? c10::Device(at::kCPU) : first->tensors.front().device();
}

// One 0-dimensional tensor for each gradient, all on one device.
std::vector<at::Tensor> NormsOf(const std::vector<Gradients>& groups, double norm_type) {
  const c10::Device device = FirstDevice(groups);
  std::vector<at::Tensor> norms;
  for (const Gradients& group : groups) {
    std::vector<at::Tensor> of_group;
    if (PythonHasNorms(group.tensors, norm_type)) {
      of_group = at::_foreach_norm(group.tensors, norm_type);
    } else {
      for (const at::Tensor& gradient : group.tensors) of_group.push_back(NormOf(gradient, norm_type));
    }
    for (const at::Tensor& norm : of_group) norms.push_back(norm.to(device));
  }
  return norms;
}

at::Tensor TotalNorm(const std::vector<at::Tensor>& norms, double norm_type) {
  return norms.empty() ? at::zeros({}) : at::linalg_vector_norm(at::stack(norms), norm_type);
}

// `norms`: of the gradients, group after group.
int64_t FirstNonfinite(const std::vector<at::Tensor>& norms, const std::vector<Gradients>& groups) {
  if (norms.empty()) return kNone;
  const at::Tensor finite = at::isfinite(at::stack(norms)).cpu();
  int64_t first = kNone, next = 0;
  for (const Gradients& group : groups) {
    for (const int64_t place : group.places) {
      if (!finite[next++].item<bool>() && (first == kNone || place < first)) first = place;
    }
  }
  return first;
}

absl::StatusOr<std::vector<Report>> Exchange(comm::ProcessGroup& group, const Report& own, c10::Device device) {
  const at::Tensor sent = at::tensor({own.norm, static_cast<double>(own.first_nonfinite)}, at::kDouble).to(device);
  const at::Tensor gathered = at::empty({group.size(), 2}, sent.options());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(gathered, sent));
  const at::Tensor host = gathered.cpu();
  std::vector<Report> reports;
  for (int rank = 0; rank < group.size(); ++rank) {
    reports.push_back({host[rank][0].item<double>(), static_cast<int64_t>(host[rank][1].item<double>())});
  }
  return reports;
}

bool Agree(double a, double b, double tolerance) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::isfinite(a) == std::isfinite(b);
  return std::abs(a - b) <= tolerance * std::max(a, b);
}

absl::Status CheckAgreement(const std::vector<Report>& reports, double tolerance) {
  std::string others;
  int count = 0;
  for (size_t rank = 1; rank < reports.size(); ++rank) {
    if (Agree(reports[0].norm, reports[rank].norm, tolerance)) continue;
    if (++count <= kListed) absl::StrAppend(&others, ", ", reports[rank].norm, " on rank ", rank);
  }
  if (count == 0) return absl::OkStatus();
  if (count > kListed) absl::StrAppend(&others, " and so on, ", count, " ranks");
  return absl::FailedPreconditionError(absl::StrCat("expected the same gradients on every rank, found a norm of ",
                                                    reports[0].norm, " on rank 0", others,
                                                    "; no gradient was changed"));
}

// Not std::max, which loses a NaN.
double Larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double Combine(const std::vector<Report>& reports, double norm_type) {
  double combined = 0;
  for (const Report& report : reports) {
    if (std::isinf(norm_type)) {
      combined = Larger(report.norm, combined);
    } else {
      combined += norm_type == 0 ? report.norm : std::pow(report.norm, norm_type);
    }
  }
  return norm_type == 0 || std::isinf(norm_type) ? combined : std::pow(combined, 1 / norm_type);
}

// `first_rank`: that of the first report.
absl::Status CheckFinite(double norm, double norm_type, const std::vector<Report>& reports, int first_rank) {
  if (std::isfinite(norm)) return absl::OkStatus();
  const auto first = std::find_if(reports.begin(), reports.end(),
                                  [](const Report& report) { return report.first_nonfinite != kNone; });
  const std::string whose = first == reports.end()
                                ? std::string("though the norm of each gradient is finite")
                                : absl::StrCat("first the gradient of parameter ", first->first_nonfinite, " on rank ",
                                               first_rank + (first - reports.begin()));
  return absl::FailedPreconditionError(absl::StrCat("expected a finite norm of order ", norm_type,
                                                    " of the gradients, found ", norm, ", ", whose,
                                                    "; no gradient was changed"));
}

// Returns whether all ranks make this call. Python's clip_grad_norm_ sends nothing.
bool AllRanksCall(const comm::ProcessGroup& group) {
  return GroupAccess::OnlyLockstepRanks(group) && !GroupAccess::Uneven(group);
}

absl::Status CheckArguments(const comm::ProcessGroup& group, double max_norm, const ClipGradNormOptions& options) {
  if (options.sharded && !AllRanksCall(group)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sharded needs all ranks, but ",
        GroupAccess::Uneven(group) ? "under Join some may have finished" : "the group may have Python ranks",
        ": expected sharded = false"));
  }
  if (!(options.norm_type >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a norm_type of at least 0, found ", options.norm_type));
  }
  if (!(max_norm >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a max_norm of at least 0, found ", max_norm));
  }
  return absl::OkStatus();
}

// `norm`: 0-dimensional. Python divides a number by a tensor as reciprocal times number, LibTorch's operator/ does not.
void ScaleAll(const std::vector<Gradients>& groups, double max_norm, const at::Tensor& norm) {
  const at::Tensor factor = (norm + 1e-6).reciprocal().mul(max_norm).clamp_max(1.0);
  for (const Gradients& group : groups) {
    const at::Tensor local = factor.to(group.tensors.front().device());
    for (const at::Tensor& gradient : group.tensors) gradient.mul_(local);
  }
}

c10::Device DeviceFor(const std::vector<at::Tensor>& parameters, const ClipGradNormOptions& options) {
  if (options.device.has_value()) return *options.device;
  return parameters.empty() || !parameters.front().defined() ? c10::Device(at::kCPU) : parameters.front().device();
}

absl::StatusOr<double> Clip(comm::ProcessGroup& group, const std::vector<at::Tensor>& parameters, double max_norm,
                            const ClipGradNormOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckArguments(group, max_norm, options));
  const c10::NoGradGuard no_grad;
  const std::vector<Gradients> groups = GradientsOf(parameters);
  const std::vector<at::Tensor> norms = NormsOf(groups, options.norm_type);
  const at::Tensor own_norm = TotalNorm(norms, options.norm_type);
  Report own;
  own.norm = own_norm.item<double>();
  if (options.error_if_nonfinite) own.first_nonfinite = FirstNonfinite(norms, groups);
  std::vector<Report> reports = {own};
  const bool all = AllRanksCall(group);
  if (all) {
    LOCKSTEP_ASSIGN_OR_RETURN(reports, Exchange(group, own, DeviceFor(parameters, options)));
  }
  if (!options.sharded) LOCKSTEP_RETURN_IF_ERROR(CheckAgreement(reports, Tolerance(own_norm.scalar_type())));
  const double norm = options.sharded ? Combine(reports, options.norm_type) : reports[0].norm;
  if (options.error_if_nonfinite)
    LOCKSTEP_RETURN_IF_ERROR(CheckFinite(norm, options.norm_type, reports, all ? 0 : group.rank()));
  ScaleAll(groups, max_norm, at::scalar_tensor(norm, own_norm.options()));
  return norm;
}

}  // namespace

absl::StatusOr<double> ClipGradNorm(comm::ProcessGroup& group, const std::vector<at::Tensor>& parameters,
                                    double max_norm, const ClipGradNormOptions& options) {
  absl::StatusOr<double> norm = absl::UnknownError("");
  const absl::Status thrown = TorchStatus("", [&] { norm = Clip(group, parameters, max_norm, options); });
  if (thrown.ok() && norm.ok()) return norm;
  return Annotate(thrown.ok() ? norm.status() : thrown,
                  absl::StrCat("rank ", group.rank(), " of ", group.size(), ": ClipGradNorm"));
}

}  // namespace lockstep::ddp
