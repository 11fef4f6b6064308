// Times training steps of one process on several devices: ours, and LibTorch's data_parallel or its algorithm
// (data_parallel_peer.h), beside the module alone. What compare.py runs for suite dp; by itself:
//
//   ./bazelw run //tools/bench:dp -- --case=resnet18/b8/64px --replicas=2,4
//
// The devices are so many times the first GPU, where there is one, else the CPU, of which every program may use all
// processors. Prints a JSON line a program, case and number of replicas: the median time of a step (zero_grad, forward,
// backward, optimizer), and the loss of the second step of all, by which compare.py knows that all train the same.

#include <ATen/ATen.h>
#include <gflags/gflags.h>
#include <torch/cuda.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/dp/data_parallel.h"
#include "lockstep/models/resnet.h"
#include "lockstep/tools/bench/data_parallel_peer.h"

DEFINE_string(case, "mlp_784_512_512_10/b64", "of mlp_784_512_512_10/b64 and resnet18/b8/64px, separated by commas");
DEFINE_string(replicas, "2,4", "how many, separated by commas; each has an image of the batch or more");
DEFINE_int32(steps, 0, "how many are timed; 0: as the case has it");

namespace lockstep {
namespace {

constexpr char kMlp[] = "mlp_784_512_512_10/b64", kResNet[] = "resnet18/b8/64px";

using Clock = std::chrono::steady_clock;
using Forward = std::function<at::Tensor(const at::Tensor&)>;

struct Batch {
  at::Tensor inputs, targets;
};

c10::Device MachinesDevice() {
  return torch::cuda::is_available() ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU);
}

Batch BatchOf(at::IntArrayRef shape) {
  torch::manual_seed(100);
  const at::Tensor inputs = at::randn(shape), targets = at::randint(10, {shape[0]}, at::kLong);
  return {inputs.to(MachinesDevice()), targets.to(MachinesDevice())};
}

torch::nn::Sequential Mlp() {
  return torch::nn::Sequential(torch::nn::Linear(784, 512), torch::nn::ReLU(), torch::nn::Linear(512, 512),
                               torch::nn::ReLU(), torch::nn::Linear(512, 10));
}

// One program: a network of its own, and how a batch goes through it.
class Program {
 public:
  Program(std::string name, std::vector<at::Tensor> parameters, Forward forward, Batch batch)
      : name_(std::move(name)),
        optimizer_(std::move(parameters), torch::optim::SGDOptions(0.01).momentum(0.9)),
        forward_(std::move(forward)),
        batch_(std::move(batch)) {}

  at::Tensor Step() {
    optimizer_.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(forward_(batch_.inputs), batch_.targets);
    loss.backward();
    optimizer_.step();
    if (loss.is_cuda()) torch::cuda::synchronize();
    return loss.detach();
  }

  void WarmUp() {
    Step();
    loss_ = Step().item<double>();
    for (int i = 0; i < 3; ++i) Step();
  }

  void TimedStep() {
    const auto begin = Clock::now();
    Step();
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }

  void Report(const std::string& name) {
    std::nth_element(seconds_.begin(), seconds_.begin() + static_cast<long>(seconds_.size() / 2), seconds_.end());
    std::cout << nlohmann::json(
                     {{"case", name}, {"program", name_}, {"seconds", seconds_[seconds_.size() / 2]}, {"loss", loss_}})
              << std::endl;
  }

 private:
  const std::string name_;
  torch::optim::SGD optimizer_;
  const Forward forward_;
  const Batch batch_;
  double loss_ = 0;
  std::vector<double> seconds_;
};

template <typename Net>
Program Alone(Net net, const Batch& batch) {
  return {"one_device", net->parameters(), [net](const at::Tensor& x) mutable { return net->forward(x); }, batch};
}

template <typename Net>
absl::StatusOr<Program> Ours(const char* name, Net net, const Batch& batch, int replicas, bool share_memory) {
  dp::Options options;
  options.device_ids.assign(replicas, dp::DeviceId(MachinesDevice()));
  options.replicate.share_memory = share_memory;
  LOCKSTEP_ASSIGN_OR_RETURN(auto wrapped, dp::Wrap(net, options));
  const auto model = std::make_shared<dp::DataParallel<Net>>(std::move(wrapped));
  return Program(
      name, model->parameters(), [model](const at::Tensor& x) { return model->forward(x); }, batch);
}

template <typename Net>
Program Peer(Net net, const Batch& batch, int replicas) {
  const std::vector<c10::Device> devices(replicas, MachinesDevice());
  return {devices[0].is_cpu() ? "clone_every_call" : "libtorch_data_parallel", net->parameters(),
          [net, devices](const at::Tensor& x) { return ForwardOfPeer(net, x, devices); }, batch};
}

// Steps of all programs in turn, so that what else the machine does meets all alike.
template <typename MakeNet>
absl::Status RunCase(const std::string& name, const Batch& batch, int replicas, int steps, Progress& progress,
                     const MakeNet& make) {
  const auto net = [&] {
    torch::manual_seed(7);
    auto made = make();
    made->to(MachinesDevice());
    return made;
  };
  LOCKSTEP_ASSIGN_OR_RETURN(Program ours, Ours("ours", net(), batch, replicas, /*share_memory=*/true));
  LOCKSTEP_ASSIGN_OR_RETURN(Program copying, Ours("ours_copying", net(), batch, replicas, /*share_memory=*/false));
  Program alone = Alone(net(), batch), peer = Peer(net(), batch, replicas);
  const std::vector<Program*> programs = {&alone, &ours, &copying, &peer};
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] {
    progress.Doing(absl::StrCat(name, "/", replicas, "replicas: warming up"));
    for (Program* program : programs) program->WarmUp();
    const int timed = FLAGS_steps > 0 ? FLAGS_steps : steps;
    for (int step = 0; step < timed; ++step) {
      progress.Doing(absl::StrCat(name, "/", replicas, "replicas: step ", step + 1, " of ", timed));
      for (Program* program : programs) program->TimedStep();
    }
  }));
  for (Program* program : programs) program->Report(absl::StrCat(name, "/", replicas, "replicas"));
  return absl::OkStatus();
}

absl::Status RunNamed(const std::string& name, int replicas, Progress& progress) {
  if (name == kMlp) return RunCase(name, BatchOf({64, 784}), replicas, 200, progress, &Mlp);
  return RunCase(name, BatchOf({8, 3, 64, 64}), replicas, 15, progress, [] { return models::ResNet18(10); });
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"steps", static_cast<double>(FLAGS_steps), 0, 1e6}}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto cases, FlagItems("case", FLAGS_case, {kMlp, kResNet}));
  const bool has_resnet = std::find(cases.begin(), cases.end(), kResNet) != cases.end();
  LOCKSTEP_ASSIGN_OR_RETURN(const auto counts, FlagNumbers("replicas", FLAGS_replicas, 1, has_resnet ? 8 : 64));
  Progress progress("dp");
  for (const int64_t replicas : counts) {
    for (const std::string& name : cases)
      LOCKSTEP_RETURN_IF_ERROR(RunNamed(name, static_cast<int>(replicas), progress));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times training steps of one process on several devices, beside LibTorch's
algorithm and the module alone, and prints a JSON line a program and case.

  dp --case=resnet18/b8/64px --replicas=2,4
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "dp: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
