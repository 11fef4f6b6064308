#include "lockstep/ddp/clip_grad_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::ddp {
namespace {

// By which part two ranks' norms of the same gradients may differ: by rounding, if one has another processor. For half
// and bfloat16 four units in the last place.
double Tolerance(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 4.0 / 128 : dtype == at::kHalf ? 4.0 / 1024 : 1e-3;
}

// How many ranks an error lists.
constexpr int kListed = 8;

constexpr int64_t kNone = -1;

struct Gradients {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> places;  // of their parameters
};

// What a rank tells the others.
struct Report {
  double norm = 0;
  int64_t first_nonfinite = kNone;  // the place of a parameter
};

Gradients GradientsOf(const std::vector<at::Tensor>& parameters) {
  Gradients gradients;
  std::unordered_set<const at::TensorImpl*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].defined() || !parameters[i].grad().defined()) continue;
    if (!seen.insert(parameters[i].unsafeGetTensorImpl()).second) continue;
    gradients.tensors.push_back(parameters[i].grad().data());
    gradients.places.push_back(static_cast<int64_t>(i));
  }
  return gradients;
}

at::Tensor NormOf(const at::Tensor& gradient, double norm_type) {
  if (!std::isinf(norm_type)) return gradient.norm(norm_type);
  return gradient.numel() == 0 ? at::zeros({}, gradient.options()) : gradient.abs().max();
}

// A 0-dimensional tensor each, on one device.
std::vector<at::Tensor> NormsOf(const std::vector<at::Tensor>& gradients, double norm_type) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) {
    norms.push_back(NormOf(gradient, norm_type).to(gradients.front().device()));
  }
  return norms;
}

// The same operations as clip_grad_norm_'s, for the same bits.
at::Tensor TotalNorm(const std::vector<at::Tensor>& norms, double norm_type) {
  if (norms.empty()) return at::zeros({});
  if (norm_type == 0) return at::full({}, static_cast<double>(norms.size()));
  if (norms.size() == 1) return norms.front();
  return std::isinf(norm_type) ? at::stack(norms).max() : at::stack(norms).norm(norm_type);
}

int64_t FirstNonfinite(const std::vector<at::Tensor>& norms, const std::vector<int64_t>& places) {
  if (norms.empty()) return kNone;
  const at::Tensor finite = at::isfinite(at::stack(norms)).cpu();
  for (size_t i = 0; i < places.size(); ++i) {
    if (!finite[static_cast<int64_t>(i)].item<bool>()) return places[i];
  }
  return kNone;
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

absl::Status CheckFinite(double norm, double norm_type, const std::vector<Report>& reports) {
  if (std::isfinite(norm)) return absl::OkStatus();
  const auto first = std::find_if(reports.begin(), reports.end(),
                                  [](const Report& report) { return report.first_nonfinite != kNone; });
  const std::string whose = first == reports.end() ? std::string("though every single gradient's is finite")
                                                   : absl::StrCat("first that of parameter ", first->first_nonfinite,
                                                                  " on rank ", first - reports.begin());
  return absl::FailedPreconditionError(absl::StrCat("expected a finite norm of order ", norm_type,
                                                    " of the gradients, found ", norm, ", ", whose,
                                                    "; no gradient was changed"));
}

absl::Status CheckArguments(double max_norm, double norm_type) {
  if (!(norm_type >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a norm_type of at least 0, found ", norm_type));
  }
  if (!(max_norm >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("expected a max_norm of at least 0, found ", max_norm));
  }
  return absl::OkStatus();
}

// `norm`: 0-dimensional. clip_grad_norm_'s operations again.
void ScaleAll(const std::vector<at::Tensor>& gradients, double max_norm, const at::Tensor& norm) {
  const at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor.to(gradient.device()));
}

c10::Device DeviceFor(const std::vector<at::Tensor>& parameters, const ClipGradNormOptions& options) {
  if (options.device.has_value()) return *options.device;
  return parameters.empty() || !parameters.front().defined() ? c10::Device(at::kCPU) : parameters.front().device();
}

absl::StatusOr<double> Clip(comm::ProcessGroup& group, const std::vector<at::Tensor>& parameters, double max_norm,
                            const ClipGradNormOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckArguments(max_norm, options.norm_type));
  const c10::NoGradGuard no_grad;
  const Gradients gradients = GradientsOf(parameters);
  const std::vector<at::Tensor> norms = NormsOf(gradients.tensors, options.norm_type);
  const at::Tensor own_norm = TotalNorm(norms, options.norm_type);
  Report own;
  own.norm = own_norm.item<double>();
  if (options.error_if_nonfinite) own.first_nonfinite = FirstNonfinite(norms, gradients.places);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Report> reports, Exchange(group, own, DeviceFor(parameters, options)));
  if (!options.sharded) LOCKSTEP_RETURN_IF_ERROR(CheckAgreement(reports, Tolerance(own_norm.scalar_type())));
  const double norm = options.sharded ? Combine(reports, options.norm_type) : reports[0].norm;
  if (options.error_if_nonfinite) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(norm, options.norm_type, reports));
  ScaleAll(gradients.tensors, max_norm, at::scalar_tensor(norm, own_norm.options()));
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
