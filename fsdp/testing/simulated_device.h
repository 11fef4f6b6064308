// A device whose memory is the host's, so that code for GPUs runs without one. Operators are the CPU's. An operator that
// has tensors of the device and of the CPU is an error, as on a GPU, unless it copies. Streams are numbers: what they are
// given is done at once. The backend "simulated" is Gloo, for tensors of the CPU and of the device.
//
// A program that links it has the device "simulated:0", c10::DeviceType::PrivateUse1.

#ifndef LOCKSTEP_FSDP_TESTING_SIMULATED_DEVICE_H_
#define LOCKSTEP_FSDP_TESTING_SIMULATED_DEVICE_H_

#include <cstdint>

namespace lockstep::fsdp::testing {

// The number of times that one stream was made to wait for another, and that the host waited for the device.
int64_t StreamWaits();
int64_t HostWaits();

}  // namespace lockstep::fsdp::testing

#endif  // LOCKSTEP_FSDP_TESTING_SIMULATED_DEVICE_H_
