// Times the steps of an optimizer and prints a JSON line. Part of tools/bench:compare; by itself:
//
//   ./bazelw run //tools/bench:optim -- --optimizer=adamw --parameters=124M --mode=fused [--steps=5]

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"
#include "median.h"
#include "nlohmann/json.hpp"

DEFINE_string(optimizer, "adamw", "adam, adamw, or sgd_momentum");
DEFINE_string(parameters, "124M", "124M (GPT-2's smallest), resnet50, or 160x4KiB");
DEFINE_string(mode, "default", "default, fused, or libtorch");
DEFINE_int32(steps, 5, "steps after the two first, which are not timed; the figure is their median");
DEFINE_bool(turns, false, "measure again, with more steps, for each line of standard input");

namespace lockstep {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

Shapes Gpt2Shapes() {
  const int64_t width = 768;
  Shapes shapes = {{50257, width}, {1024, width}};
  for (int layer = 0; layer < 12; ++layer) {
    for (const std::vector<int64_t>& shape : Shapes{{width},
                                                    {width},
                                                    {width, 3 * width},
                                                    {3 * width},
                                                    {width, width},
                                                    {width},
                                                    {width},
                                                    {width},
                                                    {width, 4 * width},
                                                    {4 * width},
                                                    {4 * width, width},
                                                    {width}}) {
      shapes.push_back(shape);
    }
  }
  shapes.insert(shapes.end(), {{width}, {width}});
  return shapes;
}

Shapes ResNet50Shapes() {
  Shapes shapes;
  const auto convolution = [&](int64_t out, int64_t in, int64_t kernel) {
    shapes.insert(shapes.end(), {{out, in, kernel, kernel}, {out}, {out}});
  };
  convolution(64, 3, 7);
  int64_t in = 64;
  for (const auto& [width, blocks] : std::vector<std::pair<int64_t, int>>{{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(width, in, 1);
      convolution(width, width, 3);
      convolution(4 * width, width, 1);
      if (block == 0) convolution(4 * width, in, 1);
      in = 4 * width;
    }
  }
  shapes.insert(shapes.end(), {{1000, in}, {1000}});
  return shapes;
}

Shapes ShapesOf(const std::string& parameters) {
  if (parameters == "124M") return Gpt2Shapes();
  if (parameters == "resnet50") return ResNet50Shapes();
  return Shapes(160, {1024});
}

template <typename Fused, typename FusedOptions, typename LibTorch, typename LibTorchOptions>
std::unique_ptr<torch::optim::Optimizer> Make(const std::vector<at::Tensor>& parameters,
                                              const std::function<void(FusedOptions&)>& ours,
                                              const LibTorchOptions& libtorch) {
  if (FLAGS_mode == "libtorch") return std::make_unique<LibTorch>(parameters, libtorch);
  FusedOptions options(1e-3);
  ours(options);
  if (FLAGS_mode == "fused") options.fused(true);
  return std::make_unique<Fused>(parameters, options);
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const std::vector<at::Tensor>& parameters) {
  if (FLAGS_optimizer == "adam") {
    return Make<optim::Adam, optim::AdamOptions, torch::optim::Adam>(
        parameters, [](auto&) {}, torch::optim::AdamOptions(1e-3));
  }
  if (FLAGS_optimizer == "adamw") {
    return Make<optim::AdamW, optim::AdamWOptions, torch::optim::AdamW>(
        parameters, [](auto&) {}, torch::optim::AdamWOptions(1e-3));
  }
  return Make<optim::SGD, optim::SGDOptions, torch::optim::SGD>(
      parameters, [](auto& options) { options.momentum(0.9); }, torch::optim::SGDOptions(1e-3).momentum(0.9));
}

double SecondsOf(const std::function<void()>& work) {
  const absl::Time start = absl::Now();
  work();
  return absl::ToDoubleSeconds(absl::Now() - start);
}

double MedianOf(int repeat, const std::function<void()>& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repeat; ++i) seconds.push_back(SecondsOf(work));
  return Median(seconds);
}

// Bytes read and written a second by a copy of 256 MiB, with the threads that a step has.
double CopyRate() {
  const at::Tensor from = at::ones({int64_t{64} << 20}), to = at::empty_like(from);
  to.copy_(from);
  return 2.0 * from.nbytes() / MedianOf(7, [&] { to.copy_(from); });
}

void Measure() {
  at::manual_seed(0);
  std::vector<at::Tensor> parameters;
  int64_t numel = 0;
  for (const std::vector<int64_t>& shape : ShapesOf(FLAGS_parameters)) {
    parameters.push_back(at::randn(shape).set_requires_grad(true));
    parameters.back().mutable_grad() = at::randn(shape);
    numel += parameters.back().numel();
  }
  const auto optimizer = MakeOptimizer(parameters);
  const auto step = [&] { optimizer->step(); };
  MedianOf(2, step);
  // A step reads parameters, gradients and states, and writes parameters and states.
  const int64_t bytes = numel * 4 * (FLAGS_optimizer == "sgd_momentum" ? 5 : 7);
  std::string line;
  do {
    const double seconds = MedianOf(FLAGS_steps, step);
    const double checksum = parameters.back().detach().to(at::kDouble).sum().item<double>();
    std::cout << nlohmann::json({{"seconds", seconds},
                                 {"bytes", bytes},
                                 {"share_of_copy_rate", bytes / seconds / CopyRate()},
                                 {"checksum", checksum}})
              << std::endl;
  } while (FLAGS_turns && std::getline(std::cin, line));
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"steps", static_cast<double>(FLAGS_steps), 1, 10000}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("optimizer", FLAGS_optimizer, {"adam", "adamw", "sgd_momentum"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("parameters", FLAGS_parameters, {"124M", "resnet50", "160x4KiB"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("mode", FLAGS_mode, {"default", "fused", "libtorch"}));
  return TorchStatus("optim", [] { Measure(); });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times the steps of an optimizer and prints a JSON line.

  optim --optimizer=adamw --parameters=124M --mode=fused
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "optim: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
