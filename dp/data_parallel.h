// Data-parallel training on several devices of one process.

#ifndef LOCKSTEP_DP_DATA_PARALLEL_H_
#define LOCKSTEP_DP_DATA_PARALLEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/base/tensors.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/dp/device_id.h"
#include "lockstep/dp/gather.h"
#include "lockstep/dp/internal/balance.h"
#include "lockstep/dp/internal/copy.h"
#include "lockstep/dp/internal/module.h"
#include "lockstep/dp/internal/workers.h"
#include "lockstep/dp/parallel_apply.h"
#include "lockstep/dp/replicate.h"
#include "lockstep/dp/scatter.h"

namespace lockstep::dp {

namespace internal {

template <typename T>
inline constexpr bool kIsTuple = false;
template <typename... T>
inline constexpr bool kIsTuple<std::tuple<T...>> = true;

}  // namespace internal

// Names are PyTorch's.
struct Options {
  // The devices to compute on. The module must be on the first. If a device occurs several times, it has a replica and
  // a thread for each: {-1, -1} halves batches on the CPU. Empty: every visible GPU (CUDA_VISIBLE_DEVICES selects them,
  // CUDA_DEVICE_ORDER orders them). Without a GPU the module is called directly, as in PyTorch.
  std::vector<DeviceId> device_ids;
  // The device of gathered outputs; -1 for the CPU. Default: the first of device_ids.
  std::optional<DeviceId> output_device;
  // The dimension along which inputs are split and outputs concatenated.
  int64_t dim = 0;
  ReplicateOptions replicate;
};

// The four parts of a DataParallel's forward. To replace one, derive from this class and hide its function:
//
//   struct Parts : dp::Parts<Net> {
//     template <typename T>
//     T Gather(const std::vector<T>& outputs, c10::Device, int64_t) { return outputs[0]; }
//   };
//   dp::Wrap(net, options, Parts());
template <typename Net>
class Parts {
 public:
  // `make_replica` creates a module like the wrapped one. It is needed if that has no clone(); see Replicas.
  explicit Parts(std::function<Net()> make_replica = nullptr) : make_replica_(std::move(make_replica)) {}

  template <typename T>
  std::vector<T> Scatter(const T& inputs, const std::vector<c10::Device>& devices, int64_t dim) {
    return dp::Scatter(inputs, devices, dim);
  }

  // Returns the first `count` replicas on `devices`. Every call has the same `devices` and `net`.
  std::vector<Net> Replicate(const Net& net, const std::vector<c10::Device>& devices, size_t count,
                             const ReplicateOptions& options) {
    if (!replicas_) replicas_ = std::make_unique<Replicas<Net>>(net, devices, options, make_replica_);
    return replicas_->Update(count);
  }

  template <typename... Args>
  auto ParallelApply(std::vector<Net>& replicas, std::vector<std::tuple<Args...>>& inputs,
                     const std::vector<c10::Device>& devices) {
    auto outputs = internal::ParallelApply(internal::KeptWorkers(workers_, devices), replicas, inputs, devices);
    if (replicas_) replicas_->CheckSharedUnwritten();
    return outputs;
  }

  template <typename T>
  T Gather(const std::vector<T>& outputs, c10::Device device, int64_t dim) {
    return dp::Gather(outputs, device, dim);
  }

 private:
  std::function<Net()> make_replica_;
  std::unique_ptr<Replicas<Net>> replicas_;
  std::unique_ptr<internal::Workers> workers_;
};

// A handle on a module whose forward runs on several devices at once, each on a chunk of the batch. Movable.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto model, dp::Wrap(Net(), {{0, 1}}));     // on two GPUs
//   torch::optim::SGD optimizer(model.parameters(), 0.1);
//   optimizer.zero_grad();
//   torch::nn::functional::cross_entropy(model(images), labels).backward();   // gradients of both chunks, summed
//   optimizer.step();
//
// Each forward splits its arguments into chunks (Scatter), gives the replicas the module's values (Replicas), runs them
// on their chunks (ParallelApply), and concatenates their outputs (Gather). Backward sums the gradients into the
// module's own, as if it had processed the whole batch. So compute the loss outside, over the whole output.
//
// The module's forward gets copies of the arguments: a chunk if an argument contains tensors, and otherwise the whole.
// Replica 0 is the module; see Replicas for writes inside the other replicas' forward. With one device the module is
// called on the calling thread, and its output is moved to output_device.
//
// As in LibTorch, errors inside forward and backward are thrown; see the four parts. Only one thread at a time may use
// a handle. operator-> does not exist, since it would bypass forward.
template <typename Net, typename PartsOfNet = Parts<Net>>
class DataParallel {
 public:
  // Throws c10::Error: the module is not on device_ids[0]. Throws StatusError with FailedPrecondition: the forward
  // wrote to parameters that replicas share.
  template <typename... Args>
  auto forward(const Args&... args) {
    using Output = std::decay_t<decltype(net_->forward(std::declval<std::decay_t<const Args&>&>()...))>;
    std::tuple<std::decay_t<const Args&>...> inputs(args...);
    return Forward<Output>(inputs);
  }
  template <typename... Args>
  auto operator()(const Args&... args) {
    return forward(args...);
  }

  // The wrapped module. Its state dict has no "module." prefix.
  Net& module() { return net_; }
  const Net& module() const { return net_; }

  // Each parameter of the module once, in order. Pass them to the optimizer.
  std::vector<at::Tensor> parameters() const { return internal::UniqueParameters(*net_); }

  void train(bool on = true) { net_->train(on); }
  void eval() { net_->eval(); }
  void zero_grad(bool set_to_none = true) { net_->zero_grad(set_to_none); }

  // Empty if there is no GPU and the module is called directly.
  const std::vector<c10::Device>& device_ids() const { return devices_; }

 private:
  template <typename N, typename P>
  friend absl::StatusOr<DataParallel<N, P>> Wrap(N net, const Options& options, P parts);

  DataParallel(Net net, PartsOfNet parts, std::vector<c10::Device> devices, c10::Device output_device,
               const Options& options)
      : net_(std::move(net)),
        parts_(std::move(parts)),
        devices_(std::move(devices)),
        output_device_(output_device),
        options_(options) {}

  template <typename Output, typename... Args>
  Output Forward(std::tuple<Args...>& inputs) {
    if (devices_.empty()) return CallModule<Output>(inputs);
    internal::CheckOnDevice(*net_, devices_[0]);
    std::vector<std::tuple<Args...>> chunks = parts_.Scatter(inputs, devices_, options_.dim);
    internal::CheckChunks(chunks.size(), devices_.size());
    if (devices_.size() == 1) {
      const auto move = [this](const at::Tensor& tensor) { return internal::CopyTo(tensor, output_device_); };
      return MapTensors(CallModule<Output>(chunks[0]), move);
    }
    if (sizeof...(Args) == 0) chunks.resize(1);  // nothing to do for the others
    const std::vector<c10::Device> used(devices_.begin(), devices_.begin() + chunks.size());
    std::vector<Net> replicas = parts_.Replicate(net_, devices_, used.size(), options_.replicate);
    const std::vector<Output> outputs = parts_.ParallelApply(replicas, chunks, used);
    for (const auto& chunk : chunks) internal::RecordWrites(internal::TensorsIn(inputs), internal::TensorsIn(chunk));
    return parts_.Gather(outputs, output_device_, options_.dim);
  }

  template <typename Output, typename... Args>
  Output CallModule(std::tuple<Args...>& inputs) {
    return std::apply([this](Args&... args) -> Output { return net_->forward(args...); }, inputs);
  }

  Net net_;
  PartsOfNet parts_;
  std::vector<c10::Device> devices_;
  c10::Device output_device_;
  Options options_;
};

// Wraps `net`, a module holder (TORCH_MODULE) or a std::shared_ptr to a module. With one device the module is moved
// there. With several, it must be on the first one when forward is called. Warns if one of the GPUs has less
// than 75 % of another's memory or multiprocessors. InvalidArgument: a device does not exist, or devices have different
// types.
template <typename Net, typename PartsOfNet = Parts<Net>>
absl::StatusOr<DataParallel<Net, PartsOfNet>> Wrap(Net net, const Options& options = {},
                                                   PartsOfNet parts = PartsOfNet()) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<c10::Device> devices, ResolveDevices(options.device_ids));
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device output_device, ResolveOutputDevice(options.output_device, devices));
  internal::WarnIfImbalanced(devices);
  if (devices.size() == 1) {
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("DataParallel", [&] { net->to(devices[0]); }));
  }
  return DataParallel<Net, PartsOfNet>(std::move(net), std::move(parts), std::move(devices), output_device, options);
}

// Runs one forward of `net` on several devices. `inputs` is its argument, or a std::tuple of its arguments. The
// replicas are created for this call only; for several forwards use Wrap(). Also throws the errors that Wrap() would
// return.
template <typename Net, typename Inputs>
auto DataParallelApply(const Net& net, const Inputs& inputs, const Options& options = {}) {
  auto model = Wrap(net, options);
  ThrowIfError(model.status());
  if constexpr (internal::kIsTuple<Inputs>) {
    return std::apply([&](const auto&... args) { return model->forward(args...); }, inputs);
  } else {
    return model->forward(inputs);
  }
}

}  // namespace lockstep::dp

#endif  // LOCKSTEP_DP_DATA_PARALLEL_H_
