// The second part of DataParallel: replicates a module on several devices.

#ifndef LOCKSTEP_DP_REPLICATE_H_
#define LOCKSTEP_DP_REPLICATE_H_

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/dp/internal/kept_replicas.h"
#include "lockstep/dp/internal/module.h"

namespace lockstep::dp {

struct ReplicateOptions {
  // Replicas on the module's device share its parameters' memory instead of copying it. Set it to false if a forward
  // writes to parameters, as Embedding's with max_norm does; otherwise all replicas write to the same memory at once.
  bool share_memory = true;
  // The approximate size of the chunks in which parameters are copied to other devices.
  int64_t chunk_bytes = 10 << 20;
};

// The replicas of one module on several devices. The first Update creates them, and later ones only update them.
//
// Replica 0 is the module itself, so what its forward writes to buffers (such as BatchNorm statistics) or members
// persists. Writes of the other replicas to buffers are lost, and their writes to members stay in the replica. The
// gradients of the replicas' parameters are summed into the module's gradients, in the order of the replicas from 1 on.
// Memory: one copy of the buffers for each replica, and one copy of the parameters for each replica on another device
// (for each replica if `share_memory` is false).
template <typename Net>
class Replicas {
 public:
  // `net` is a module holder or a std::shared_ptr to a module, on devices[0]. `make` creates a module like it, and is
  // needed if it has no clone() as in torch::nn::Cloneable. `make` must not change modules that it has returned. Throws
  // c10::ValueError if `devices` is empty.
  Replicas(const Net& net, const std::vector<c10::Device>& devices, const ReplicateOptions& options = {},
           std::function<Net()> make = nullptr)
      : kept_(internal::PtrOf(net), Others(devices),
              {options.share_memory, options.chunk_bytes, MakePtr(std::move(make))}),
        net_(net) {}

  // Updates and returns the first `count` replicas, with the module's current values, training mode and requires_grad.
  // The replicas are created anew if the module's submodules or tensors have been replaced (another dtype, a new
  // layer), or if a parameter was frozen while a graph keeps the replicas'. Non-tensor members, such as options of
  // layers, keep the value they had when the replica was made. The default generator's state does not change.
  //
  // Throws the exceptions of clone(). Throws c10::ValueError if the result of clone() or `make` has another type, other
  // submodules, parameters or buffers, or shares tensors with the module, or if `count` is not from 1 to the number of
  // devices.
  std::vector<Net> Update(size_t count) {
    std::vector<Net> nets = {net_};
    const std::vector<internal::ModulePtr>& replicas = kept_.Update(count - 1);
    for (size_t i = 1; i < count; ++i) nets.push_back(AsNet(replicas[i - 1]));
    return nets;
  }

  // Throws StatusError with FailedPrecondition, naming the parameter, if a parameter that replicas share was written to
  // since Update, according to its autograd version: all replicas may have written to it at once.
  void CheckSharedUnwritten() const { kept_.CheckSharedUnwritten(); }

 private:
  static std::vector<c10::Device> Others(const std::vector<c10::Device>& devices) {
    TORCH_CHECK_VALUE(!devices.empty(), "Replicas: expected one device or more, found none");
    return {devices.begin() + 1, devices.end()};
  }

  static std::function<internal::ModulePtr()> MakePtr(std::function<Net()> make) {
    if (!make) return nullptr;
    return [make = std::move(make)] { return internal::PtrOf(make()); };
  }

  static Net AsNet(const internal::ModulePtr& module) {
    return Net(std::dynamic_pointer_cast<internal::ModuleOf<Net>>(module));
  }

  internal::KeptReplicas kept_;
  Net net_;
};

// Returns `net` on each of `devices`: result[0] is `net`, which must be there, and the others are replicas of its
// current state, connected as described for Replicas. For several forwards keep a Replicas.
template <typename Net>
std::vector<Net> Replicate(const Net& net, const std::vector<c10::Device>& devices,
                           const ReplicateOptions& options = {}, std::function<Net()> make = nullptr) {
  TORCH_CHECK_VALUE(!devices.empty(), "Replicate: expected one device or more, found none");
  internal::CheckOnDevice(*internal::PtrOf(net), devices[0]);
  return Replicas<Net>(net, devices, options, std::move(make)).Update(devices.size());
}

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_REPLICATE_H_
