#include "lockstep/checkpoint/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint {
namespace {

// 0 if the program has no CUDA.
int CudaDevices() { return at::detail::getCUDAHooks().getNumGPUs(); }

at::Generator CudaGenerator(int device) {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
}

at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

absl::Status SetState(at::Generator generator, const Value& state, absl::string_view what) {
  if (!state.is_tensor() || state.tensor().scalar_type() != at::kByte) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected a ByteTensor, found ", state.type_name()));
  }
  const absl::Status set = TorchStatus(what, [&] {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state.tensor().cpu());
  });
  // LibTorch throws an untyped error if the size or the contents are not a valid state.
  return set.ok() ? set : absl::InvalidArgumentError(set.message());
}

}  // namespace

absl::StatusOr<Value> RngState() {
  return TorchStatusOr("random generators", [] {
    Value state = Value::Dict({{"cpu", StateOf(at::detail::getDefaultCPUGenerator())}});
    std::vector<Value> cuda;
    for (int device = 0; device < CudaDevices(); ++device) cuda.push_back(StateOf(CudaGenerator(device)));
    if (!cuda.empty()) state.Set("cuda", Value::List(std::move(cuda)));
    return state;
  });
}

absl::Status SetRngState(const Value& state) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value cpu, Get(state, "cpu"));
  LOCKSTEP_RETURN_IF_ERROR(SetState(at::detail::getDefaultCPUGenerator(), cpu, "[\"cpu\"]"));
  if (!state.Find("cuda")) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> cuda, GetItems(state, "cuda"));
  if (static_cast<int>(cuda.size()) > CudaDevices()) {
    return absl::FailedPreconditionError(absl::StrCat("[\"cuda\"]: expected the generators of ", CudaDevices(),
                                                      " devices or fewer, found ", cuda.size()));
  }
  for (int device = 0; device < cuda.size(); ++device) {
    LOCKSTEP_RETURN_IF_ERROR(SetState(CudaGenerator(device), cuda[device], absl::StrCat("[\"cuda\"][", device, "]")));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint
