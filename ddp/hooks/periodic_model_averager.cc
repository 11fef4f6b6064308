#include "lockstep/ddp/hooks/periodic_model_averager.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/flat.h"

namespace lockstep::ddp::hooks {
namespace {

absl::Status Check(const std::vector<at::Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (parameter.defined() && (parameter.is_floating_point() || parameter.is_complex())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("AverageParameters: parameter ", i, " is ",
                     parameter.defined() ? c10::toString(parameter.scalar_type()) : "undefined",
                     ", expected floating-point or complex numbers"));
  }
  return absl::OkStatus();
}

// Groups tensors by dtype and device, in the order in which these first occur.
std::vector<std::vector<at::Tensor>> Alike(const std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const at::Tensor& parameter : parameters) {
    const auto list = std::find_if(lists.begin(), lists.end(), [&](const std::vector<at::Tensor>& other) {
      return other[0].scalar_type() == parameter.scalar_type() && other[0].device() == parameter.device();
    });
    if (list == lists.end()) {
      lists.push_back({parameter});
    } else {
      list->push_back(parameter);
    }
  }
  return lists;
}

absl::Status Average(comm::ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  const at::Tensor flat = comm::internal::Flatten(parameters).div_(group.size());
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(flat));
  comm::internal::Unflatten(flat, parameters);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PeriodicModelAverager> PeriodicModelAverager::Create(comm::ProcessGroup* group,
                                                                    const PeriodicModelAveragerOptions& options) {
  if (options.period < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("PeriodicModelAverager: period is ", options.period, ", expected 1 or more"));
  }
  if (options.warmup_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("PeriodicModelAverager: warmup_steps is ", options.warmup_steps, ", expected 0 or more"));
  }
  return PeriodicModelAverager(group, options);
}

absl::Status PeriodicModelAverager::AverageParameters(const std::vector<at::Tensor>& parameters) {
  LOCKSTEP_RETURN_IF_ERROR(Check(parameters));
  const int64_t step = step_++;
  if (step < options_.warmup_steps || (step - options_.warmup_steps) % options_.period != 0) return absl::OkStatus();
  absl::Status status;
  const absl::Status thrown =
      TorchStatus(absl::StrCat("rank ", group_->rank(), ": AverageParameters in step ", step), [&] {
        const c10::NoGradGuard no_grad;
        for (const std::vector<at::Tensor>& alike : Alike(parameters)) {
          if (status.ok()) status = Average(*group_, alike);
        }
      });
  return thrown.ok() ? status : thrown;
}

}  // namespace lockstep::ddp::hooks
