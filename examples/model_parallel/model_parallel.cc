// A model whose halves sit on two devices, trained alone and then data-parallel, each rank with two devices of its own.
//
//   bazel run //examples/model_parallel                             # two ranks on this machine
//   bazel run //examples/model_parallel -- --nproc_per_node=3 --steps=50
//   bazel-bin/launch/launch --nproc_per_node=2 bazel-bin/examples/model_parallel/model_parallel   # or torchrun
//   --no-python
//
// prints, on two ranks without a GPU,
//
//   alone: halves on cpu and cpu, 20 steps: loss 1.11386 -> 0.884604, and the same bits as on one device
//   ddp: 2 ranks with halves on cpu and cpu, 20 steps: loss 1.16495 -> 0.98222, all alike, and the same bits as on one
//   device
//
// The program exits with an error when the loss does not fall, the ranks differ, or the model that is not split trains
// to anything else. With enough GPUs, two a rank, the halves sit on those; the other model then is on the CPU, which
// rounds differently, so 1e-5 is allowed there.

#include <c10/core/DeviceGuard.h>
#include <gflags/gflags.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/model_parallel/toy_mp_model.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/spawn.h"

DEFINE_int32(steps, 20, "Steps of training, all on the same samples.");
DEFINE_int32(nproc_per_node, 2, "Ranks to start; a launcher that has started this program decides itself.");
DEFINE_double(timeout, 60, "Seconds that meeting, or one collective, may take.");

namespace lockstep::examples {
namespace {

constexpr int64_t kBatch = 20;  // samples a rank
constexpr double kLearningRate = 0.1;

// This rank's samples, which are other ones on every rank.
struct Batch {
  at::Tensor inputs, labels;
};

Batch BatchOf(int rank) {
  torch::manual_seed(1000 + rank);
  const at::Tensor inputs = torch::randn({kBatch, 10});
  return {inputs, torch::randn({kBatch, 5})};
}

// Returns a copy of the layers on one device, with the same values.
torch::nn::Sequential Unsplit(const ToyMpModel& split) {
  torch::nn::Sequential unsplit(torch::nn::Linear(10, 10), torch::nn::ReLU(), torch::nn::Linear(10, 5));
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> from = split->parameters(), to = unsplit->parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  return unsplit;
}

// The loss of the first and of the last step.
struct Losses {
  double first = 0, last = 0;
};

template <typename Model>
Losses Train(Model& model, const std::vector<at::Tensor>& parameters, const Batch& batch) {
  torch::optim::SGD optimizer(parameters, kLearningRate);
  Losses losses;
  for (int step = 0; step < FLAGS_steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor outputs = model.forward(batch.inputs);
    const at::Tensor loss = torch::nn::functional::mse_loss(outputs, batch.labels.to(outputs.device()));
    loss.backward();
    optimizer.step();
    losses.last = loss.item<double>();
    if (step == 0) losses.first = losses.last;
  }
  return losses;
}

std::string Text(const std::vector<c10::Device>& devices, const Losses& losses) {
  return absl::StrCat("halves on ", devices[0].str(), " and ", devices[1].str(), ", ", FLAGS_steps, " steps: loss ",
                      losses.first, " -> ", losses.last);
}

absl::Status CheckLosses(const Losses& losses) {
  if (losses.last < losses.first) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the loss did not fall: ", losses.first, " -> ", losses.last));
}

// How far the parameters of the two models are apart, in words; Internal if that is too far.
absl::StatusOr<std::string> Compare(const std::vector<at::Tensor>& split, const std::vector<at::Tensor>& unsplit) {
  if (Flat(split).equal(Flat(unsplit))) return "the same bits as on one device";
  const bool on_gpu = split[0].is_cuda();
  const double difference = MaxDifference(split, unsplit);
  if (on_gpu && difference < 1e-5) return absl::StrCat("as on one device, within ", difference);
  return absl::InternalError(absl::StrCat("the model on one device ends ", difference, " away"));
}

void Say(const comm::ProcessGroup& group, const std::string& line) {
  if (group.rank() == 0) std::cout << line << std::endl;
}

absl::Status Alone(const std::vector<c10::Device>& devices, comm::ProcessGroup& group) {
  ToyMpModel model(devices[0], devices[1]);
  torch::nn::Sequential unsplit = Unsplit(model);
  const Batch batch = BatchOf(group.rank());
  const Losses losses = Train(*model, model->parameters(), batch);
  Train(*unsplit, unsplit->parameters(), batch);
  LOCKSTEP_RETURN_IF_ERROR(CheckLosses(losses));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string comparison, Compare(model->parameters(), unsplit->parameters()));
  Say(group, absl::StrCat("alone: ", Text(devices, losses), ", and ", comparison));
  return absl::OkStatus();
}

// Without device_ids: DistributedDataParallel leaves the model where it is, and averages each half's gradients there.
absl::Status DataParallel(const std::vector<c10::Device>& devices, comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto model, ddp::Wrap(ToyMpModel(devices[0], devices[1]), &group));
  LOCKSTEP_ASSIGN_OR_RETURN(auto unsplit, ddp::Wrap(Unsplit(model.module()), &group));
  const Batch batch = BatchOf(group.rank());
  const Losses losses = Train(model, model.parameters(), batch);
  Train(unsplit, unsplit.parameters(), batch);
  LOCKSTEP_RETURN_IF_ERROR(CheckLosses(losses));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(model.parameters(), group));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string comparison, Compare(model.parameters(), unsplit.parameters()));
  Say(group,
      absl::StrCat("ddp: ", group.size(), " ranks with ", Text(devices, losses), ", all alike, and ", comparison));
  return absl::OkStatus();
}

absl::Status RunAsRank() {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment, comm::ReadRankEnvironment());
  const std::vector<c10::Device> devices = RankDevices(environment, 2);
  const c10::DeviceGuard on_first_device(devices[0]);  // NCCL wants to know before it starts
  comm::InitOptions options;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  for (const auto run : {&Alone, &DataParallel}) {
    absl::Status status;
    const absl::Status thrown = TorchStatus("", [&] { status = run(devices, *group); });
    status.Update(thrown);
    LOCKSTEP_RETURN_IF_ERROR(FinishRank(group.get(), status));
  }
  return absl::OkStatus();
}

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Trains a model whose halves sit on two devices, alone and then data-parallel,
and compares it with the same model on one device.

  model_parallel                               two ranks on this machine
  launch --nproc_per_node=2 model_parallel     under a launcher, such as torchrun
)";
  return usage;
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRanges({{"steps", FLAGS_steps * 1.0, 2}, {"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckSeconds("timeout", FLAGS_timeout));
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return RunAsRank(); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  lockstep::ParseCommandLine(argc, argv, lockstep::examples::Usage());
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << absl::StrCat("model_parallel: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
