// How far the kernels of a convolution are from each other: the sum over all pairs of them of the sum of |p - q|,
// computed on several devices at once, as a loss.

#ifndef LOCKSTEP_EXAMPLES_KERNEL_DISTANCE_KERNEL_DISTANCE_H_
#define LOCKSTEP_EXAMPLES_KERNEL_DISTANCE_KERNEL_DISTANCE_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

namespace lockstep::examples {

struct KernelDistanceOptions {
  // Each takes a share of the kernels and compares them with all. One that is named twice has two shares.
  std::vector<c10::Device> devices = {c10::Device(c10::kCPU)};

  // A share is worked on in blocks of kernels, such that the differences of a block's kernels and all others have no
  // more bytes than this, but of one kernel at least. (On the CPU they are never in memory; LibTorch's backward for
  // GPUs puts them there.)
  int64_t block_bytes = int64_t{64} << 20;
};

// The weights of the model's Conv2d layers, [kernels, channels, height, width] each.
std::vector<at::Tensor> ConvolutionWeights(const torch::nn::Module& model);

// The sum over all ordered pairs (p, q) of kernels of a layer, which are weight[0], weight[1], ..., of the sum of
// |p - q|; a scalar on the weight's device.
//
//   KernelDistanceOptions options;
//   options.devices = {c10::Device("cuda:0"), c10::Device("cuda:1")};
//   at::Tensor loss = cross_entropy(net(images), labels);
//   for (const at::Tensor& weight : ConvolutionWeights(*net)) loss = loss + 1e-7 * KernelDistance(weight, options);
//   loss.backward();
//
// Differentiable, once. Its graph holds one number for each pair, kernels^2 of them shared by the devices, instead of
// the kernels^2 * channels * height * width that comparing pair by pair keeps. On the CPU the distance and its gradient
// have the same bits whatever the number of devices and the size of blocks. GPUs choose the order of a sum by its
// shape, so the last bits may differ there.
//
// Throws c10::ValueError where `devices` is empty, or block_bytes is not positive.
at::Tensor KernelDistance(const at::Tensor& weight, const KernelDistanceOptions& options);

// Adds `factor` times the distance's gradient to weight.grad() block by block and returns the distance, without a
// graph. Only a block's graph for each device is in memory at a time. The bits are those of KernelDistance() under the
// same conditions, and for the gradient where weight.grad() was zero or not defined.
//
//   loss.backward();
//   for (const at::Tensor& weight : ConvolutionWeights(*net)) AccumulateKernelDistance(weight, 1e-7, options);
//   optimizer.step();
//
// The weight's hooks are not called. Under DistributedDataParallel call it after backward: there is nothing to average,
// since the ranks' kernels are the same. Throws as KernelDistance, and c10::ValueError unless weight is a leaf that
// requires gradients.
at::Tensor AccumulateKernelDistance(const at::Tensor& weight, double factor, const KernelDistanceOptions& options);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_KERNEL_DISTANCE_KERNEL_DISTANCE_H_
