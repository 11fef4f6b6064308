// Mixed precision with LibTorch's autocast: torch.autocast for C++.

#ifndef LOCKSTEP_DDP_AMP_AUTOCAST_H_
#define LOCKSTEP_DDP_AMP_AUTOCAST_H_

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace lockstep::ddp {

// While an Autocast exists, operations of this thread on tensors of a device type choose their dtype. Matrix products
// and convolutions compute in half or bfloat16. Operations that need the range or precision compute in float.
//
//   torch::Tensor loss;
//   {
//     const ddp::Autocast autocast(torch::kCUDA, torch::kBFloat16);
//     loss = torch::cross_entropy_loss(net(images), labels);
//   }
//   loss.backward();   // outside: each backward computes in the dtype of its forward
//
// Parameters stay in float, and so do their gradients. A parameter is cast once, and the copy is kept until the
// outermost Autocast of the thread ends. So use one Autocast for each forward, and do not keep it across an optimizer's
// step.
//
// Autocasts nest. With `enabled` = false, an inner one turns off an outer one. Each restores the state that it found.
// They must end on the thread on which they were created, in reverse order.
class Autocast {
 public:
  // `dtype`: half or bfloat16. Default: the thread's setting, which is half for CUDA and bfloat16 for the CPU unless
  // changed. `cache_enabled`: whether cast parameters are kept. Default: no change. Throws c10::ValueError for device
  // types other than CPU and CUDA, and for other dtypes.
  explicit Autocast(c10::DeviceType device_type, std::optional<c10::ScalarType> dtype = std::nullopt,
                    bool enabled = true, std::optional<bool> cache_enabled = std::nullopt);
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
