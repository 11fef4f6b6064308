// Measures training steps of ResNet-50 on images in memory and prints a JSON line. Part of tools/bench:compare; by
// itself:
//
//   ./bazelw run //tools/bench:resnet -- [--setting=mkldnn] [--ranks=2] [--batch=16] [--steps=5] [--threads=2]

#include "lockstep/models/resnet.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/progress.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/models/channels_last.h"
#include "nlohmann/json.hpp"

DEFINE_string(setting, "float32",
              "float32, channels_last, mkldnn (images in oneDNN's blocked layout), bf16 (autocast), channels_last_bf16 "
              "or channels_last_fp16 (with a gradient scaler; on a GPU)");
DEFINE_string(device, "cpu", "or cuda, in a build with --config=cuda");
DEFINE_int32(ranks, 1, "processes, which share the batch and the threads and train together by ddp; 1: without it");
DEFINE_int64(batch, 16, "images a step");
DEFINE_int32(steps, 5, "steps that are timed, after one that is not; the figure is their median");
DEFINE_int32(threads, 2, "LibTorch's intra-op threads");

namespace lockstep {
namespace {

using Forward = std::function<at::Tensor(const at::Tensor& images)>;

bool ChannelsLast() { return absl::StartsWith(FLAGS_setting, "channels_last"); }
bool Half() { return absl::EndsWith(FLAGS_setting, "fp16"); }

models::ResNet MakeNet() {
  models::ResNet net = models::ResNet50();
  net->to(c10::Device(FLAGS_device));
  if (ChannelsLast()) models::ToChannelsLast(*net);
  return net;
}

at::Tensor MakeImages() {
  const at::Tensor images = torch::randn({FLAGS_batch / FLAGS_ranks, 3, 224, 224}).to(c10::Device(FLAGS_device));
  if (FLAGS_setting == "mkldnn") return images.to_mkldnn();
  return ChannelsLast() ? images.contiguous(at::MemoryFormat::ChannelsLast) : images;
}

class Trainer {
 public:
  Trainer(Forward forward, const std::vector<at::Tensor>& parameters, ddp::GradScaler scaler)
      : forward_(std::move(forward)),
        images_(MakeImages()),
        targets_(torch::randint(1000, {images_.size(0)}, at::kLong).to(images_.device())),
        optimizer_(parameters, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4)),
        scaler_(std::move(scaler)) {}

  double Step() {
    at::Tensor loss;
    {
      const ddp::Autocast autocast(images_.device().type(), Half() ? at::kHalf : at::kBFloat16,
                                   Half() || absl::EndsWith(FLAGS_setting, "bf16"));
      loss = at::cross_entropy_loss(forward_(images_), targets_);
    }
    optimizer_.zero_grad();
    scaler_.Scale(loss).backward();
    ThrowIfError(scaler_.Step(optimizer_).status());
    ThrowIfError(scaler_.Update());
    return loss.item<double>();
  }

 private:
  const Forward forward_;
  const at::Tensor images_, targets_;
  torch::optim::SGD optimizer_;
  ddp::GradScaler scaler_;
};

absl::StatusOr<ddp::GradScaler> MakeScaler() {
  ddp::GradScalerOptions options;
  options.enabled = Half();
  return ddp::GradScaler::Create(options);
}

nlohmann::json Measure(Trainer& trainer, Progress* progress) {
  if (progress) progress->Doing("the step to warm up");
  double loss = trainer.Step();
  std::vector<double> seconds;
  for (int i = 0; i < FLAGS_steps; ++i) {
    if (progress) progress->Doing(absl::StrCat("step ", i + 1, " of ", FLAGS_steps));
    const absl::Time start = absl::Now();
    loss = trainer.Step();
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return {{"setting", FLAGS_setting},
          {"ranks", FLAGS_ranks},
          {"images_per_second", FLAGS_batch / seconds[seconds.size() / 2]},
          {"loss", loss}};
}

absl::Status RunAlone() {
  at::set_num_threads(FLAGS_threads);
  torch::manual_seed(7);
  LOCKSTEP_ASSIGN_OR_RETURN(const ddp::GradScaler scaler, MakeScaler());
  Progress progress("resnet");
  return TorchStatus("resnet", [&] {
    models::ResNet net = MakeNet();
    Trainer trainer([&](const at::Tensor& images) { return net(images); }, net->parameters(), scaler);
    std::cout << Measure(trainer, &progress) << std::endl;
  });
}

absl::Status RunRank(int rank) {
  std::optional<Progress> progress;
  if (rank == 0) progress.emplace("resnet");
  at::set_num_threads(FLAGS_threads / FLAGS_ranks);
  torch::manual_seed(7 + rank);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup({}));
  LOCKSTEP_ASSIGN_OR_RETURN(auto wrapped, ddp::Wrap(MakeNet(), group.get()));
  LOCKSTEP_ASSIGN_OR_RETURN(const ddp::GradScaler scaler, MakeScaler());
  return TorchStatus("resnet", [&] {
    Trainer trainer([&](const at::Tensor& images) { return wrapped(images); }, wrapped.parameters(), scaler);
    const nlohmann::json result =
        Measure(trainer, progress ? &*progress : nullptr);  // ranks step together, so any one's times are all ranks'
    if (rank == 0) std::cout << result << std::endl;
  });
}

absl::Status CheckFlags() {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("setting", FLAGS_setting,
                  {"float32", "channels_last", "mkldnn", "bf16", "channels_last_bf16", "channels_last_fp16"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("device", FLAGS_device, {"cpu", "cuda"}));
  if (Half() && FLAGS_device == "cpu") {
    return FlagError("setting", FLAGS_setting, "--device=cuda with it, since a step in float16 takes minutes on a CPU");
  }
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRanges({{"ranks", static_cast<double>(FLAGS_ranks), 1, FLAGS_device == "cuda" ? 1. : 256.},
                   {"batch", static_cast<double>(FLAGS_batch), 1, 65536},
                   {"steps", static_cast<double>(FLAGS_steps), 1, 1e6},
                   {"threads", static_cast<double>(FLAGS_threads), 1, 4096}}));
  if (FLAGS_batch % FLAGS_ranks != 0) {
    return FlagError("batch", FLAGS_batch, absl::StrCat("a multiple of --ranks=", FLAGS_ranks));
  }
  if (FLAGS_threads >= FLAGS_ranks) return absl::OkStatus();
  return FlagError("threads", FLAGS_threads, absl::StrCat("one for each of --ranks=", FLAGS_ranks, ", or more"));
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags());
  return FLAGS_ranks > 1 ? launch::Spawn(FLAGS_ranks, RunRank) : RunAlone();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times training steps of ResNet-50 on images in memory and prints a JSON line.

  resnet --setting=mkldnn --ranks=2 --batch=16 --steps=5 --threads=2
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << absl::StrCat("resnet: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
