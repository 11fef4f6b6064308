#include "lockstep/fsdp/testing/device_ranks.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/comm/testing/shared_gpu.h"

namespace lockstep::fsdp::testing {
namespace {

std::string Name() {
  const char* const name = getenv("DEVICE");
  return name ? name : "cpu";
}

// Gives access to protected members.
struct Members : c10::TensorImpl {
  static auto KeySet() { return &Members::key_set_; }
  static auto Device() { return &Members::device_opt_; }
};

bool Exists() {
  const c10::DeviceType type = TestDevice().type();
  return c10::impl::hasDeviceGuardImpl(type) && c10::impl::getDeviceGuardImpl(type)->deviceCount() > 0;
}

}  // namespace

bool OnGpu() { return Name() == "cuda"; }

c10::Device TestDevice() {
  if (OnGpu()) return c10::Device(c10::kCUDA, 0);
  return Name() == "simulated" ? c10::Device(c10::DeviceType::PrivateUse1, 0) : c10::Device(c10::kCPU);
}

// LibTorch's module.to() moves parameters to the devices that it knows only.
void MoveToTestDevice(torch::nn::Module& module) {
  const c10::Device device = TestDevice();
  if (device.type() != c10::DeviceType::PrivateUse1) return module.to(device);
  std::vector<at::Tensor> tensors = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) tensors.push_back(buffer);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor moved = tensor.detach().to(device);
    c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    impl->*Members::KeySet() = moved.key_set();
    impl->*Members::Device() = device;
    impl->set_storage_keep_dtype(moved.storage());
  }
}

void OnDeviceRanks(int ranks, const std::function<absl::Status(comm::ProcessGroup& group)>& body) {
  comm::testing::Process probe([](const comm::testing::Process::Say&) { return Exists() ? 0 : 1; });
  if (probe.Wait(absl::Minutes(1)) != 0) GTEST_SKIP() << "this machine has no device " << Name();
  comm::InitOptions options;
  options.backend = OnGpu() ? "cpu:gloo,cuda:nccl" : Name() == "simulated" ? "simulated" : "gloo";
  options.timeout = absl::Seconds(30);
  const auto run = [&body](const comm::InitOptions& own, const comm::testing::Process::Say&) {
    comm::testing::ShareTheGpu(own.rank);
    absl::Status status;
    const absl::Status thrown = TorchStatus("", [&] {
      const auto group = comm::InitProcessGroup(own);
      ThrowIfError(group.status());
      status = body(**group);
      if (status.ok()) status = (*group)->Barrier();
    });
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_EQ(thrown, absl::OkStatus());
    return ::testing::Test::HasFailure() ? 1 : 0;
  };
  comm::testing::RankProcesses processes(ranks, options, run);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes[rank].Wait(absl::Minutes(2)), 0) << "rank " << rank;
}

}  // namespace lockstep::fsdp::testing
