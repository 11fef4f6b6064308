// The distance between the kernels of a convolution, as a loss: the sum of |p - q| over all pairs of kernels. It is
// computed on several devices at once.

#ifndef LOCKSTEP_EXAMPLES_KERNEL_DISTANCE_KERNEL_DISTANCE_H_
#define LOCKSTEP_EXAMPLES_KERNEL_DISTANCE_KERNEL_DISTANCE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

namespace lockstep::examples {

struct KernelDistanceOptions {
  // Each device takes a share of the kernels and compares them with all kernels. A device that occurs twice has two
  // shares.
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};

  // A share is processed in blocks of kernels. The differences between a block's kernels and all others take at most
  // this many bytes, but a block has at least one kernel. (On the CPU they are never stored; LibTorch's backward for
  // GPUs stores them.)
  int64_t block_bytes = int64_t{64} << 20;
};

// The weights of the model's Conv2d layers, [kernels, channels, height, width] each.
std::vector<at::Tensor> ConvolutionWeights(const torch::nn::Module& model);

// The sum of |p - q| over all ordered pairs (p, q) of the kernels weight[0], weight[1], ... of a layer. Returns a
// scalar on the weight's device.
//
//   KernelDistanceOptions options;
//   options.devices = {c10::Device("cuda:0"), c10::Device("cuda:1")};
//   at::Tensor loss = cross_entropy(net(images), labels);
//   for (const at::Tensor& weight : ConvolutionWeights(*net)) loss = loss + 1e-7 * KernelDistance(weight, options);
//   loss.backward();
//
// Differentiable once. Its graph holds one number for each pair: kernels^2 numbers, divided among the devices.
// Comparing pair by pair would keep kernels^2 * channels * height * width. On the CPU the distance and its gradient
// have the same bits for any number of devices and any block size. GPUs choose the order of a sum by its shape, so the
// last bits may differ there.
//
// Throws c10::ValueError if `devices` is empty or block_bytes is not positive.
at::Tensor KernelDistance(const at::Tensor& weight, const KernelDistanceOptions& options);

// Adds `factor` times the gradient of the distance to weight.grad() block by block, and returns the distance, without a
// graph. Only the graph of one block for each device is in memory at a time. The distance has the bits of
// KernelDistance() under the same conditions. So does the gradient, if weight.grad() was zero or undefined.
//
//   loss.backward();
//   for (const at::Tensor& weight : ConvolutionWeights(*net)) AccumulateKernelDistance(weight, 1e-7, options);
//   optimizer.step();
//
// The weight's hooks are not called. Under DistributedDataParallel call it after backward: nothing needs averaging,
// since the ranks' kernels are equal. Throws as KernelDistance, and c10::ValueError unless weight is a leaf that
// requires gradients.
at::Tensor AccumulateKernelDistance(const at::Tensor& weight, double factor, const KernelDistanceOptions& options);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_KERNEL_DISTANCE_KERNEL_DISTANCE_H_
