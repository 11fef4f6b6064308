// The backend "simulated".

#include <ATen/ATen.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/backend.h"

namespace lockstep::fsdp::testing {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The tensor of the CPU that has the memory of `tensor`.
at::Tensor OnHost(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  return at::from_blob(
      tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(), [keep = tensor](void*) {},
      at::TensorOptions(tensor.scalar_type()));
}
Tensors OnHost(const Tensors& tensors) {
  Tensors on_host;
  for (const at::Tensor& tensor : tensors) on_host.push_back(OnHost(tensor));
  return on_host;
}
std::vector<Tensors> OnHost(const std::vector<Tensors>& lists) {
  std::vector<Tensors> on_host;
  for (const Tensors& tensors : lists) on_host.push_back(OnHost(tensors));
  return on_host;
}

class Backend final : public c10d::Backend {
 public:
  explicit Backend(c10::intrusive_ptr<c10d::Backend> gloo)
      : c10d::Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "simulated"; }
  void abort() override { gloo_->abort(); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors own = OnHost(tensors);
    return gloo_->broadcast(own, options);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Tensors own = OnHost(tensors);
    return gloo_->allreduce(own, options);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    std::vector<Tensors> to = OnHost(outputs);
    Tensors from = OnHost(inputs);
    return gloo_->allgather(to, from, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    at::Tensor to = OnHost(output), from = OnHost(input);
    return gloo_->_allgather_base(to, from, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    at::Tensor to = OnHost(output), from = OnHost(input);
    return gloo_->alltoall_base(to, from, output_splits, input_splits, options);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    Tensors to = OnHost(outputs);
    std::vector<Tensors> from = OnHost(inputs);
    return gloo_->scatter(to, from, options);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return gloo_->barrier(options); }
  WorkPtr send(Tensors& tensors, int to, int tag) override {
    Tensors own = OnHost(tensors);
    return gloo_->send(own, to, tag);
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    Tensors own = OnHost(tensors);
    return gloo_->recv(own, from, tag);
  }

 private:
  const c10::intrusive_ptr<c10d::Backend> gloo_;
};

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> Create(const comm::BackendContext& context) {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::BackendInfo gloo, comm::FindBackend("gloo"));
  LOCKSTEP_ASSIGN_OR_RETURN(c10::intrusive_ptr<c10d::Backend> made, gloo.create(context));
  return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<Backend>(std::move(made)));
}

[[maybe_unused]] const bool registered = comm::RegisterBackend(
    {"simulated", {c10::DeviceType::CPU, c10::DeviceType::PrivateUse1}, /*preference=*/-200, nullptr, Create});

}  // namespace
}  // namespace lockstep::fsdp::testing
