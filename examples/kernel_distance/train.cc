// Trains a ResNet on random images with a term in the loss that draws the kernels of each convolution towards each
// other: the sum over all pairs of kernels of the sum of |p - q|, computed on several devices at once.
//
//   bazel run //examples/kernel_distance:train       # two shares on the CPU; --help lists more
//
// prints, without a GPU,
//
//   12 convolutions: distance 5.73489e+07, with its gradient the same bits on cpu, cpu as on one device
//   memory beyond weights and gradients: 23.2 MiB at once, 1.1 MiB block by block
//   step 1: cross entropy 2.50913 + 1e-06 x distance 5.73489e+07 = 59.85802
//   step 2: cross entropy 0.28318 + 1e-06 x distance 5.72916e+07 = 57.57478
//   step 3: cross entropy 0.01302 + 1e-06 x distance 5.7224e+07 = 57.23707
//
// and exits with an error when bits differ or the loss does not fall.

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/dp/device_id.h"
#include "lockstep/examples/kernel_distance/kernel_distance.h"
#include "lockstep/examples/program/peak_memory.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/models/resnet.h"

DEFINE_string(
    devices, "",
    "Where the distance is computed, with commas; one named twice has two shares. Empty: all GPUs, or the CPU "
    "with two shares.");
DEFINE_bool(accumulate, false, "Add the distance's gradient block by block, where memory is short.");
DEFINE_int64(block_mib, 64, "MiB that the differences of a block of kernels may take.");
DEFINE_int64(blocks, 1, "Residual blocks in each of the four stages of the model; 2 is ResNet-18.");
DEFINE_int64(steps, 3, "Steps of training, all on the same images.");
DEFINE_int64(batch_size, 8, "Images, of 32 x 32.");
DEFINE_int64(convolutions, 0, "Take the distance in the model's first so many convolutions only; 0: in all.");
DEFINE_double(factor, 1e-6, "Factor of the distance in the loss.");
DEFINE_double(lr, 0.05, "SGD's learning rate.");

namespace lockstep::examples {
namespace {

absl::StatusOr<std::vector<c10::Device>> Devices() {
  std::vector<dp::DeviceId> ids;
  if (!FLAGS_devices.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
      for (const absl::string_view name : absl::StrSplit(FLAGS_devices, ',')) {
        ids.emplace_back(c10::Device(std::string(name)));
      }
    }));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<c10::Device> devices, dp::ResolveDevices(ids));
  if (devices.empty()) devices.assign(2, c10::Device(c10::kCPU));
  return devices;
}

// The distances of all layers, added up. With `accumulate`, --factor times its gradient is added to the weights', and
// the sum has no graph.
at::Tensor Distance(const std::vector<at::Tensor>& weights, const KernelDistanceOptions& options, bool accumulate) {
  std::vector<at::Tensor> distances;
  for (const at::Tensor& weight : weights) {
    distances.push_back(accumulate ? AccumulateKernelDistance(weight, FLAGS_factor, options)
                                   : KernelDistance(weight, options));
  }
  return at::stack(distances).sum();
}

// ---- The distance by itself, three times.

struct Measured {
  std::vector<at::Tensor> values;  // the distance and the weights' gradients
  int64_t peak_bytes = 0;          // beyond the weights and their gradients
};

Measured Measure(const std::vector<at::Tensor>& weights, const KernelDistanceOptions& options, bool accumulate) {
  for (const at::Tensor& weight : weights) weight.mutable_grad() = at::zeros_like(weight);
  const PeakMemory peak;
  const at::Tensor distance = Distance(weights, options, accumulate);
  if (!accumulate) (distance * FLAGS_factor).backward();
  Measured measured = {{distance.detach()}, peak.bytes()};
  for (const at::Tensor& weight : weights) {
    measured.values.push_back(weight.grad());
    weight.mutable_grad() = at::Tensor();
  }
  return measured;
}

// How far the distance and its gradients are from those on one device; Internal if that is too far. On GPUs the order
// of a sum depends on its shape.
absl::StatusOr<double> CheckSame(const Measured& measured, const Measured& one, const std::string& name) {
  double difference = 0;
  for (size_t i = 0; i < one.values.size(); ++i) {
    const at::Tensor largest = (measured.values[i] - one.values[i]).abs().max();
    difference = std::max(difference, (largest / one.values[i].abs().max()).item<double>());
  }
  if (difference <= (one.values[0].is_cuda() ? 1e-6 : 0)) return difference;
  return absl::InternalError(absl::StrCat(name, ": it is ", difference, " of itself away from that on one device"));
}

absl::Status Compare(const std::vector<at::Tensor>& weights, const KernelDistanceOptions& options, Progress& progress) {
  const std::string devices = absl::StrJoin(options.devices, ", ", absl::StreamFormatter());
  KernelDistanceOptions on_one = options;
  on_one.devices.resize(1, options.devices[0]);
  progress.Doing("the distance on one device");
  const Measured one = Measure(weights, on_one, /*accumulate=*/false);
  progress.Doing(absl::StrCat("the distance on ", devices));
  const Measured whole = Measure(weights, options, /*accumulate=*/false);
  progress.Doing("the distance block by block");
  const Measured blocks = Measure(weights, options, /*accumulate=*/true);
  LOCKSTEP_ASSIGN_OR_RETURN(const double of_whole, CheckSame(whole, one, devices));
  LOCKSTEP_ASSIGN_OR_RETURN(const double of_blocks, CheckSame(blocks, one, absl::StrCat(devices, ", block by block")));
  const double difference = std::max(of_whole, of_blocks);
  const std::string same = difference == 0 ? "the same bits" : absl::StrCat("within ", difference, " the same");
  std::cout << weights.size() << " convolutions: distance " << one.values[0].item<float>() << ", with its gradient "
            << same << " on " << devices << " as on one device\n"
            << absl::StrFormat("memory beyond weights and gradients: %.1f MiB at once, %.1f MiB block by block\n",
                               whole.peak_bytes / 1048576.0, blocks.peak_bytes / 1048576.0)
            << std::flush;
  return absl::OkStatus();
}

// ---- Training with it.

absl::Status Train(models::ResNet& net, const std::vector<at::Tensor>& weights, const KernelDistanceOptions& options,
                   Progress& progress) {
  const at::Tensor images = torch::randn({FLAGS_batch_size, 3, 32, 32}).to(options.devices[0]);
  const at::Tensor labels = torch::randint(10, {FLAGS_batch_size}, torch::kLong).to(options.devices[0]);
  torch::optim::SGD optimizer(net->parameters(), FLAGS_lr);
  double first = 0, last = 0;
  for (int64_t step = 1; step <= FLAGS_steps; ++step) {
    progress.Doing(absl::StrCat("step ", step, " of ", FLAGS_steps));
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net(images), labels);
    if (FLAGS_accumulate) loss.backward();
    const at::Tensor distance = Distance(weights, options, FLAGS_accumulate);
    if (!FLAGS_accumulate) (loss + FLAGS_factor * distance).backward();
    optimizer.step();
    last = loss.item<double>() + FLAGS_factor * distance.item<double>();
    if (step == 1) first = last;
    std::cout << absl::StrFormat("step %d: cross entropy %.5f + %g x distance %.6g = %.5f\n", step, loss.item<double>(),
                                 FLAGS_factor, distance.item<double>(), last)
              << std::flush;
  }
  if (last < first) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the loss did not fall: ", first, " -> ", last));
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"steps", FLAGS_steps * 1.0, 2},
                                        {"convolutions", FLAGS_convolutions * 1.0, 0},
                                        {"batch_size", FLAGS_batch_size * 1.0, 2},
                                        {"factor", FLAGS_factor, -1e9},
                                        {"lr", FLAGS_lr, 0}}));
  const absl::StatusOr<std::vector<c10::Device>> devices = Devices();
  if (!devices.ok()) return Annotate(devices.status(), absl::StrCat("--devices=", FLAGS_devices));
  const KernelDistanceOptions options = {*devices, FLAGS_block_mib << 20};
  Progress progress("train");
  torch::manual_seed(0);
  models::ResNetOptions model;
  model.blocks.fill(FLAGS_blocks);
  model.num_classes = 10;
  models::ResNet net(model);
  net->to(options.devices[0]);
  std::vector<at::Tensor> weights = ConvolutionWeights(*net);
  if (FLAGS_convolutions > 0 && FLAGS_convolutions < weights.size()) weights.resize(FLAGS_convolutions);
  LOCKSTEP_RETURN_IF_ERROR(Compare(weights, options, progress));
  return Train(net, weights, options, progress);
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Trains a ResNet on random images with a term in the loss that draws the kernels
of each convolution towards each other, computed on several devices at once.

  train                                two shares on the CPU
  train --devices=cuda:0,cuda:1        two GPUs
  train --accumulate --block_mib=8     where memory is short
)";
  usage.groups = {{"The distance", {"devices", "accumulate", "block_mib", "convolutions", "factor"}},
                  {"Training", {"blocks", "steps", "batch_size", "lr"}}};
  return ExampleMain(argc, argv, usage, {"block_mib", "blocks"}, Run);
}
