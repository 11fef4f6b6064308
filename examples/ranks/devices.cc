#include "lockstep/examples/ranks/devices.h"

#include <torch/cuda.h>

namespace lockstep::examples {

std::vector<c10::Device> RankDevices(const comm::RankEnvironment& environment, int count) {
  std::vector<c10::Device> devices(count, c10::Device(c10::kCPU));
  if (static_cast<int>(torch::cuda::device_count()) < count * environment.local_world_size) return devices;
  for (int i = 0; i < count; ++i) {
    devices[i] = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(count * environment.local_rank + i));
  }
  return devices;
}

}  // namespace lockstep::examples
