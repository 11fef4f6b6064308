// Measures training steps of ResNet-50 on images in memory and prints a JSON line. Part of tools/bench:compare; by
// itself:
//
//   ./bazelw run //tools/bench:resnet -- [--setting=channels_last] [--batch=16] [--steps=5] [--threads=2]

#include "lockstep/models/resnet.h"

#include <ATen/Parallel.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/models/channels_last.h"
#include "nlohmann/json.hpp"

DEFINE_string(setting, "float32", "float32, channels_last, bf16 (autocast) or channels_last_bf16");
DEFINE_int64(batch, 16, "images a step");
DEFINE_int32(steps, 5, "steps that are timed, after one that is not; the figure is their median");
DEFINE_int32(threads, 2, "LibTorch's intra-op threads");

namespace lockstep {
namespace {

class Trainer {
 public:
  Trainer(bool channels_last, bool bf16)
      : bf16_(bf16),
        net_(MakeNet(channels_last)),
        images_(torch::randn({FLAGS_batch, 3, 224, 224})
                    .contiguous(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous)),
        targets_(torch::randint(1000, {FLAGS_batch}, at::kLong)),
        optimizer_(net_->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4)) {}

  double Step() {
    at::Tensor loss;
    {
      std::optional<ddp::Autocast> autocast;
      if (bf16_) autocast.emplace(at::kCPU, at::kBFloat16);
      loss = at::cross_entropy_loss(net_(images_), targets_);
    }
    optimizer_.zero_grad();
    loss.backward();
    optimizer_.step();
    return loss.item<double>();
  }

 private:
  static models::ResNet MakeNet(bool channels_last) {
    models::ResNet net = models::ResNet50();
    if (channels_last) models::ToChannelsLast(*net);
    return net;
  }

  const bool bf16_;
  models::ResNet net_;
  const at::Tensor images_, targets_;
  torch::optim::SGD optimizer_;
};

nlohmann::json Measure(Trainer& trainer) {
  double loss = trainer.Step();
  std::vector<double> seconds;
  for (int i = 0; i < FLAGS_steps; ++i) {
    const absl::Time start = absl::Now();
    loss = trainer.Step();
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
  }
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return {{"setting", FLAGS_setting}, {"images_per_second", FLAGS_batch / seconds[seconds.size() / 2]}, {"loss", loss}};
}

absl::Status Run() {
  const std::vector<std::string> settings = {"float32", "channels_last", "bf16", "channels_last_bf16"};
  if (std::count(settings.begin(), settings.end(), FLAGS_setting) == 0)
    return absl::InvalidArgumentError(absl::StrCat("--setting: ", FLAGS_setting, " is none; see --help"));
  if (FLAGS_batch < 1 || FLAGS_steps < 1 || FLAGS_threads < 1)
    return absl::InvalidArgumentError("--batch, --steps and --threads: expected positive numbers");
  at::set_num_threads(FLAGS_threads);
  torch::manual_seed(7);
  return TorchStatus("resnet", [] {
    Trainer trainer(absl::StartsWith(FLAGS_setting, "channels_last"), absl::EndsWith(FLAGS_setting, "bf16"));
    std::cout << Measure(trainer) << std::endl;
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const absl::Status status = lockstep::Run();
  if (status.ok()) return 0;
  std::cerr << status.message() << "\n";
  return 1;
}
