// The "nccl" backend, with CUDA: PyTorch's own NCCL process group, whose code is inside libtorch_cuda.

#include <stdlib.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/nccl/internal/preference.h"

namespace lockstep::comm {
namespace {

// By default PyTorch's watchdog ends the process when a collective fails. 2 lets it only abort the communicator, so
// that the error reaches the caller that waits. PyTorch reads it when it creates a process group. A value that the user
// has set is kept.
void KeepTheProcessOnErrors() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0); });
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Create(const BackendContext& context) {
  KeepTheProcessOnErrors();
  return TorchStatusOr("making the nccl backend", [&]() -> c10::intrusive_ptr<c10d::Backend> {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = absl::ToChronoMilliseconds(context.timeout);
    options->group_name = context.group;
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(context.store, context.rank, context.size, options);
  });
}

[[maybe_unused]] const bool registered =
    RegisterBackend({"nccl", {c10::DeviceType::CUDA}, internal::kNcclPreference, /*usable=*/nullptr, Create});

}  // namespace
}  // namespace lockstep::comm
