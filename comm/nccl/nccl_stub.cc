// The "nccl" backend of a build without CUDA. Its error says how to build with CUDA.

#include "lockstep/comm/backend.h"
#include "lockstep/comm/nccl/internal/preference.h"

namespace lockstep::comm {
namespace {

absl::Status NeedsCuda() {
  return absl::UnimplementedError(
      "backend \"nccl\": this program was built without CUDA; build it with --config=cuda, or in another workspace "
      "with --@lockstep//tools/flags:cuda, or in CMake with -DLOCKSTEP_CUDA=ON");
}

[[maybe_unused]] const bool registered = RegisterBackend(
    {"nccl",
     {c10::DeviceType::CUDA},
     internal::kNcclPreference,
     [](const BackendContext&) { return NeedsCuda(); },
     [](const BackendContext&) -> absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> { return NeedsCuda(); }});

}  // namespace
}  // namespace lockstep::comm
