// The model of PyTorch's Fashion-MNIST tutorials: 784-512-512-10 with ReLU. Its state dict has the same names as in
// Python.

#ifndef LOCKSTEP_EXAMPLES_FASHION_MNIST_NET_H_
#define LOCKSTEP_EXAMPLES_FASHION_MNIST_NET_H_

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace lockstep::examples {

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }

  void reset() override {
    linear_relu_stack =
        register_module("linear_relu_stack", torch::nn::Sequential(torch::nn::Linear(28 * 28, 512), torch::nn::ReLU(),
                                                                   torch::nn::Linear(512, 512), torch::nn::ReLU(),
                                                                   torch::nn::Linear(512, 10)));
  }

  // float32 [batch, 1, 28, 28] -> logits, float32 [batch, 10].
  torch::Tensor forward(const torch::Tensor& images) { return linear_relu_stack->forward(images.flatten(1)); }

  torch::nn::Sequential linear_relu_stack{nullptr};
};
TORCH_MODULE(Net);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_NET_H_
