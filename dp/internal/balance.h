// Checks whether devices are similar enough for equal shares of a batch.

#ifndef LOCKSTEP_DP_INTERNAL_BALANCE_H_
#define LOCKSTEP_DP_INTERNAL_BALANCE_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "lockstep/dp/internal/peers.h"

namespace lockstep::dp::internal {

// A warning if one of the devices has less than 75 % of another's memory or multiprocessors, and so makes the others
// wait. Empty if not. The rule is the same as in PyTorch's torch.nn.parallel.data_parallel.
std::string ImbalanceWarning(const std::vector<c10::Device>& devices, const std::vector<DeviceProperties>& properties);

// Logs this warning with TORCH_WARN for GPUs. For the CPU it does nothing.
void WarnIfImbalanced(const std::vector<c10::Device>& devices);

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_BALANCE_H_
