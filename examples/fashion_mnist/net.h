// The model of PyTorch's Fashion-MNIST tutorials, 784-512-512-10 with ReLU, and a recipe that trains it well. Its state
// dict has the same names as in Python.

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

// Images with zero mean and unit variance, by the statistics of the training images' pixels.
inline torch::Tensor Normalized(const torch::Tensor& images) { return images.sub(0.2860).div(0.3530); }

inline constexpr double kLearningRate = 0.15, kMomentum = 0.9;  // of SGD

// The share of the maximal learning rate after `done` of `all` steps. It rises linearly over the first three tenths of
// the run, as a high rate early on amplifies every rounding error, and falls linearly to 0 over the rest.
inline double ScheduledShare(double done, double all) {
  const double warm_up = 0.3 * all;
  return done < warm_up ? (done + 1) / (warm_up + 1) : (all - done) / (all - warm_up);
}

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_FASHION_MNIST_NET_H_
