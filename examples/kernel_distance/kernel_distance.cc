#include "lockstep/examples/kernel_distance/kernel_distance.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/autograd.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "lockstep/dp/broadcast.h"
#include "lockstep/dp/gather.h"
#include "lockstep/dp/parallel_apply.h"
#include "lockstep/dp/scatter.h"

namespace lockstep::examples {
namespace {

// Kernels of one block: its differences with all of `kernels`, one a row, have block_bytes at most.
int64_t BlockSize(const at::Tensor& kernels, int64_t block_bytes) {
  TORCH_CHECK_VALUE(block_bytes > 0, "kernel distance: expected block_bytes to be 1 or more, found ", block_bytes);
  return std::max<int64_t>(1, block_bytes / std::max<int64_t>(1, static_cast<int64_t>(kernels.nbytes())));
}

// For each of `rows` the sum of its distances from all of `kernels`, which is on the same device. The gradient counts
// twice: a pair stands in the whole sum as (p, q) and as (q, p), and `kernels` takes no gradient. So a row's gradient
// is computed in one place, in one order, however the rows are shared.
at::Tensor RowSums(const at::Tensor& rows, const at::Tensor& kernels, int64_t block_bytes) {
  std::vector<at::Tensor> sums;
  for (const at::Tensor& block : rows.split(BlockSize(kernels, block_bytes))) {
    const at::Tensor sum = at::cdist(block, kernels, /*p=*/1).sum(1);
    sums.push_back(sum + (sum - sum.detach()));
  }
  return at::cat(sums);
}

// A device's part: its rows, all kernels, and the size of blocks.
using Share = std::tuple<at::Tensor, at::Tensor, int64_t>;

// RowSums of all rows, on their device, by all devices at once. `copies`: the kernels on each device.
at::Tensor RowSumsByDevices(const at::Tensor& rows, const std::vector<std::vector<at::Tensor>>& copies,
                            const KernelDistanceOptions& options) {
  const std::vector<at::Tensor> chunks = dp::Scatter(rows, options.devices);
  std::vector<Share> shares;
  for (size_t i = 0; i < chunks.size(); ++i) shares.emplace_back(chunks[i], copies[i][0], options.block_bytes);
  const std::vector<c10::Device> devices(options.devices.begin(), options.devices.begin() + chunks.size());
  const std::vector<decltype(&RowSums)> functions(chunks.size(), &RowSums);
  return dp::Gather(dp::ParallelApply(functions, shares, devices), rows.device());
}

}  // namespace

std::vector<at::Tensor> ConvolutionWeights(const torch::nn::Module& model) {
  std::vector<at::Tensor> weights;
  for (const auto& module : model.modules()) {
    if (const auto* convolution = module->as<torch::nn::Conv2dImpl>()) weights.push_back(convolution->weight);
  }
  return weights;
}

at::Tensor KernelDistance(const at::Tensor& weight, const KernelDistanceOptions& options) {
  const at::Tensor rows = weight.flatten(1);
  return RowSumsByDevices(rows, dp::Broadcast({rows.detach()}, options.devices), options).sum();
}

at::Tensor AccumulateKernelDistance(const at::Tensor& weight, double factor, const KernelDistanceOptions& options) {
  TORCH_CHECK_VALUE(weight.is_leaf() && weight.requires_grad(),
                    "kernel distance: expected a leaf that requires gradients to accumulate them in");
  const at::Tensor kernels = weight.detach().flatten(1);
  const auto copies = dp::Broadcast({kernels}, options.devices);
  if (!weight.grad().defined()) weight.mutable_grad() = at::zeros_like(weight);
  const at::Tensor gradient = weight.grad().view(kernels.sizes());
  const int64_t step = BlockSize(kernels, options.block_bytes) * static_cast<int64_t>(options.devices.size());
  std::vector<at::Tensor> sums;
  for (int64_t start = 0; start < kernels.size(0); start += step) {
    const int64_t end = std::min(start + step, kernels.size(0));
    const at::Tensor rows = kernels.slice(0, start, end).detach().requires_grad_();
    const at::Tensor sum = RowSumsByDevices(rows, copies, options);
    const at::Tensor of_block = torch::autograd::grad({sum.sum() * factor}, {rows})[0];
    gradient.slice(0, start, end).add_(of_block);
    sums.push_back(sum.detach());
  }
  return at::cat(sums).sum();
}

}  // namespace lockstep::examples
