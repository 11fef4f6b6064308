// Whether devices are alike enough to get equal shares of a batch.

#ifndef LOCKSTEP_DP_BALANCE_H_
#define LOCKSTEP_DP_BALANCE_H_

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "lockstep/dp/internal/peers.h"

namespace lockstep::dp {

// What a user should hear about devices of such properties: that one has less than 75 % of another's memory or
// multiprocessors, and so makes the others wait. Empty: nothing. PyTorch's torch.nn.parallel.data_parallel warns by the
// same rule.
std::string ImbalanceWarning(const std::vector<c10::Device>& devices,
                             const std::vector<internal::DeviceProperties>& properties);

// TORCH_WARNs it for these GPUs; of the CPU there is nothing to say.
void WarnIfImbalanced(const std::vector<c10::Device>& devices);

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_BALANCE_H_
