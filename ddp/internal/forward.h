#ifndef LOCKSTEP_DDP_INTERNAL_FORWARD_H_
#define LOCKSTEP_DDP_INTERNAL_FORWARD_H_

#include <ATen/core/Tensor.h>

#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/base/tensors.h"
#include "lockstep/ddp/internal/replica.h"

namespace lockstep::ddp::internal {

// The type that forward gets for an argument of type Arg: a copy with other tensors or, if it holds no tensors, the
// argument.
template <typename Arg>
using ChangedInput = std::conditional_t<kMayHoldTensors<Arg>, std::decay_t<Arg>, Arg&&>;

template <typename Arg>
ChangedInput<Arg> ChangeInput(const Replica& replica, Arg&& arg) {
  if constexpr (kMayHoldTensors<Arg>) {
    return MapTensors(arg, [&](const at::Tensor& tensor) { return replica.ChangeInput(tensor); });
  } else {
    return std::forward<Arg>(arg);
  }
}

// Calls net_forward(args...), the forward of `module`, with DDP's work before and after it. The result has the module's
// own type.
template <typename NetForward, typename... Args>
decltype(auto) Forward(Replica& replica, const torch::nn::Module& module, const NetForward& net_forward,
                       Args&&... args) {
  using Result = decltype(net_forward(std::forward<Args>(args)...));
  const auto call = [&]() -> Result {
    if constexpr ((kMayHoldTensors<Args> || ...)) {
      if (replica.ChangesInputs()) {
        // Each keeps its value category: a reference to a copy, or the copy itself.
        std::tuple<ChangedInput<Args>...> changed(ChangeInput<Args>(replica, std::forward<Args>(args))...);
        return std::apply([&](auto&... arg) -> Result { return net_forward(static_cast<Args&&>(arg)...); }, changed);
      }
    }
    return net_forward(std::forward<Args>(args)...);
  };
  replica.BeforeForward(module);
  if constexpr (std::is_void_v<Result>) {
    call();
    replica.AfterForward();
  } else {
    Result output = call();
    if constexpr (kMayHoldTensors<Result>) {
      if constexpr (!std::is_reference_v<Result>) {
        if (replica.ChangesOutputs())
          output = MapTensors(output, [&](const at::Tensor& tensor) { return replica.ChangeOutput(tensor); });
      }
      ForEachTensor(output, [&](const at::Tensor& tensor) { replica.WatchOutput(tensor); });
    }
    replica.AfterForward();
    return static_cast<Result>(std::forward<Result>(output));
  }
}

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_FORWARD_H_
