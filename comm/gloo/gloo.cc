// The "gloo" backend: PyTorch's own Gloo process group, whose code is inside libtorch_cpu.

#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/internal/backend_status.h"

namespace lockstep::comm {
namespace {

using c10d::ProcessGroupGloo;
using Devices = decltype(ProcessGroupGloo::Options::devices);

bool IsLoopback(absl::string_view host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

// GLOO_SOCKET_IFNAME, as in PyTorch; else loopback where the ranks met on it, since then they share a host; else
// PyTorch's choice.
Devices ChooseDevices(const BackendContext& context) {
  Devices devices;
  const char* interfaces = std::getenv("GLOO_SOCKET_IFNAME");
  if (interfaces && *interfaces) {
    for (const absl::string_view name : absl::StrSplit(interfaces, ',')) {
      devices.push_back(ProcessGroupGloo::createDeviceForInterface(std::string(name)));
    }
  } else if (IsLoopback(context.master_addr)) {
    devices.push_back(ProcessGroupGloo::createDeviceForHostname(context.master_addr));
  } else {
    devices.push_back(ProcessGroupGloo::createDefaultDevice());
  }
  return devices;
}

// PyTorch 2.11's flight recorder writes an unguarded std::map, shared by all groups of the process, whenever a Gloo
// collective starts: two threads that start one at the same time corrupt it. Starts are therefore taken one at a time;
// nothing waits for other ranks here.
class Gloo final : public ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    const absl::MutexLock lock(&StartMutex());
    return ProcessGroupGloo::broadcast(tensors, options);
  }
  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    const absl::MutexLock lock(&StartMutex());
    return ProcessGroupGloo::allreduce(tensors, options);
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    const absl::MutexLock lock(&StartMutex());
    return ProcessGroupGloo::allgather(outputs, inputs, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    const absl::MutexLock lock(&StartMutex());
    return ProcessGroupGloo::barrier(options);
  }

 private:
  static absl::Mutex& StartMutex() {
    static auto* const mutex = new absl::Mutex();
    return *mutex;
  }
};

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Create(const BackendContext& context) {
  try {
    auto options = ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(context.timeout));
    options->devices = ChooseDevices(context);
    // Two threads a device, as Python's init_process_group gives it.
    options->threads = static_cast<int>(options->devices.size()) * 2;
    return c10::make_intrusive<Gloo>(context.store, context.rank, context.size, options);
  } catch (...) {
    return internal::BackendStatus("making the gloo backend");
  }
}

[[maybe_unused]] const bool registered = RegisterBackend(
    {"gloo", {c10::DeviceType::CPU, c10::DeviceType::CUDA}, /*preference=*/0, /*usable=*/nullptr, Create});

}  // namespace
}  // namespace lockstep::comm
