// The "gloo" backend: PyTorch's own Gloo process group, whose code is inside libtorch_cpu.

#include "lockstep/comm/backend.h"
#include "lockstep/comm/gloo/internal/gloo_backend.h"
#include "lockstep/comm/internal/backend_status.h"

namespace lockstep::comm {
namespace {

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Create(const BackendContext& context) {
  try {
    return internal::MakeGlooBackend(context);
  } catch (...) {
    return internal::BackendStatus("making the gloo backend");
  }
}

[[maybe_unused]] const bool registered = RegisterBackend(
    {"gloo", {c10::DeviceType::CPU, c10::DeviceType::CUDA}, /*preference=*/0, /*usable=*/nullptr, Create});

}  // namespace
}  // namespace lockstep::comm
