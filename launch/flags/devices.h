// The GPUs of this node, for --nproc_per_node=gpu.

#ifndef LOCKSTEP_LAUNCH_FLAGS_DEVICES_H_
#define LOCKSTEP_LAUNCH_FLAGS_DEVICES_H_

#include <string>

namespace lockstep::launch {

// The number of NVIDIA devices: the files nvidia0, nvidia1 and so on in `folder`, which is /dev. If there are any and
// `visible` is not null, it is the number of devices in this value of CUDA_VISIBLE_DEVICES, up to one that is "-1".
int NvidiaDevices(const std::string& folder, const char* visible);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_FLAGS_DEVICES_H_
