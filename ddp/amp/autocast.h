// Mixed precision by LibTorch's autocast.

#ifndef LOCKSTEP_DDP_AMP_AUTOCAST_H_
#define LOCKSTEP_DDP_AMP_AUTOCAST_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "absl/types/optional.h"

namespace lockstep::ddp {

// As long as it lives, operations of this thread on tensors of a device type choose their dtype: matrix products and
// convolutions compute in half or bfloat16, what needs the range or the digits in float. torch.autocast for C++.
//
//   torch::Tensor loss;
//   {
//     const ddp::Autocast autocast(torch::kCUDA, torch::kBFloat16);
//     loss = torch::cross_entropy_loss(net(images), labels);
//   }
//   loss.backward();   // outside: each backward computes in the dtype of its forward
//
// Parameters stay in float, and so do their gradients. A parameter is cast once and the copy kept until the outermost
// Autocast of the thread ends, so use one for each forward and do not let it live across an optimizer's step.
//
// Guards nest, also to switch off (`enabled` = false) what an outer one switched on; each restores the state that it
// found. They have to end in the thread, and in reverse of the order, in which they were made.
class Autocast {
 public:
  // `dtype`: half or bfloat16; not set: the thread's own, which is half for CUDA and bfloat16 for the CPU unless
  // changed. `cache_enabled`: keep cast parameters; not set: as it is. Throws c10::ValueError for a device type other
  // than CPU and CUDA, and for other dtypes.
  explicit Autocast(c10::DeviceType device_type, absl::optional<c10::ScalarType> dtype = absl::nullopt,
                    bool enabled = true, absl::optional<bool> cache_enabled = absl::nullopt);
  ~Autocast();

  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_type_;
  c10::ScalarType former_dtype_;
  bool formerly_enabled_;
  bool cache_formerly_enabled_;
};

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_AMP_AUTOCAST_H_
