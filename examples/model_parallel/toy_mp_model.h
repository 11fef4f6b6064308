// PyTorch's example of a model that is spread over several devices.

#ifndef LOCKSTEP_EXAMPLES_MODEL_PARALLEL_TOY_MP_MODEL_H_
#define LOCKSTEP_EXAMPLES_MODEL_PARALLEL_TOY_MP_MODEL_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::examples {

// Two layers on two devices. Forward moves activations from the first to the second device, and backward moves
// gradients back automatically.
//
//   ToyMpModel model(c10::Device("cuda:0"), c10::Device("cuda:1"));
//   const at::Tensor outputs = model(inputs);
//   mse_loss(outputs, labels.to(outputs.device())).backward();
//
// Wrap such a model in DistributedDataParallel without device_ids, so that its devices do not change.
struct ToyMpModelImpl : torch::nn::Module {
  ToyMpModelImpl(c10::Device device0, c10::Device device1)
      : device0(device0),
        device1(device1),
        net1(register_module("net1", torch::nn::Linear(10, 10))),
        net2(register_module("net2", torch::nn::Linear(10, 5))) {
    net1->to(device0);
    net2->to(device1);
  }

  // float32 [batch, 10] on any device -> float32 [batch, 5] on device1.
  at::Tensor forward(const at::Tensor& x) { return net2->forward(net1->forward(x.to(device0)).relu().to(device1)); }

  c10::Device device0, device1;
  torch::nn::Linear net1, net2;
};
TORCH_MODULE(ToyMpModel);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_MODEL_PARALLEL_TOY_MP_MODEL_H_
