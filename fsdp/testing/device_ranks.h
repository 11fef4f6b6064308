// Tests of fully sharded training on a device. The environment variable DEVICE names it: "cpu", "simulated", or "cuda", a
// GPU that all ranks share. Ranks are processes: threads would wait for each other on autograd's one thread for a device.

#ifndef LOCKSTEP_FSDP_TESTING_DEVICE_RANKS_H_
#define LOCKSTEP_FSDP_TESTING_DEVICE_RANKS_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <functional>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::fsdp::testing {

// In a rank's process, the device of the test.
c10::Device TestDevice();
bool OnGpu();

// Moves the module's parameters and buffers there.
void MoveToTestDevice(torch::nn::Module& module);

// Runs the body in this many processes, whose group takes tensors of the CPU and of the device. Expects that it returns OK
// in all, and that none of its EXPECTs fails. Skips the test if the machine has no such device. The test's own process must
// not use a GPU before or after, or its children cannot.
void OnDeviceRanks(int ranks, const std::function<absl::Status(comm::ProcessGroup& group)>& body);

}  // namespace lockstep::fsdp::testing

#endif  // LOCKSTEP_FSDP_TESTING_DEVICE_RANKS_H_
