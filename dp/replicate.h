// The second part of DataParallel: a module on several devices.

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
  // Replicas on the module's own device use its parameters' memory rather than a copy of it. Off for a forward that
  // writes to parameters, as Embedding's with max_norm does: else all replicas write to the same ones at once.
  bool share_memory = true;
  // Parameters travel to other devices in chunks of about so many bytes.
  int64_t chunk_bytes = 10 << 20;
};

// The replicas of one module on some devices. They are made by the first Update, and after it only brought up to date.
//
// Replica 0 is the module itself, so what its forward writes to buffers, BatchNorm's statistics say, or to members of
// its own stays; what the other replicas' write to buffers is lost, and to members is seen by them alone. Gradients of
// the replicas' parameters sum to gradients of the module's, in the order of the replicas from 1 on. Memory: one copy
// of the buffers a replica, and one of the parameters if it is on another device or `share_memory` is off.
template <typename Net>
class Replicas {
 public:
  // `net`: a module holder or a std::shared_ptr to a module, on devices[0]. `make` makes a module like it and is needed
  // for one that has no clone(), as torch::nn::Cloneable gives it; it must not change what it has made later. Throws
  // c10::ValueError if `devices` is empty.
  Replicas(const Net& net, const std::vector<c10::Device>& devices, const ReplicateOptions& options = {},
           std::function<Net()> make = nullptr)
      : kept_(internal::PtrOf(net), Others(devices),
              {options.share_memory, options.chunk_bytes, MakePtr(std::move(make))}),
        net_(net) {}

  // The first `count` replicas, as the module is now: values, training mode, requires_grad. Where its submodules or
  // tensors are others than before (another dtype, a new layer), or one was frozen while a graph keeps the replicas',
  // the replicas are made anew; other members, as options of layers, are those of when a replica was made. The state of
  // the default generator stays as it is.
  //
  // Throws what clone() throws, and c10::ValueError if what it or `make` made is of another type, has other submodules,
  // parameters or buffers, or shares tensors with the module, or if `count` is not from 1 to the number of devices.
  std::vector<Net> Update(size_t count) {
    std::vector<Net> nets = {net_};
    const std::vector<internal::ModulePtr>& replicas = kept_.Update(count - 1);
    for (size_t i = 1; i < count; ++i) nets.push_back(AsNet(replicas[i - 1]));
    return nets;
  }

  // Throws StatusError with FailedPrecondition, naming the parameter, if one whose memory replicas share was written to
  // since Update, as autograd sees it: all of them may have done so at once.
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

// `net` on each of `devices`: result[0] is `net`, which has to be there, and the others are replicas of it as it is
// now, attached as Replicas describes. For more than one forward keep Replicas.
template <typename Net>
std::vector<Net> Replicate(const Net& net, const std::vector<c10::Device>& devices,
                           const ReplicateOptions& options = {}, std::function<Net()> make = nullptr) {
  TORCH_CHECK_VALUE(!devices.empty(), "Replicate: expected one device or more, found none");
  internal::CheckOnDevice(*internal::PtrOf(net), devices[0]);
  return Replicas<Net>(net, devices, options, std::move(make)).Update(devices.size());
}

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_REPLICATE_H_
