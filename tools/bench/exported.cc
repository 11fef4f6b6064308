// Times training steps of an exported program, or of the network in C++, and prints a JSON line. Part of
// tools/bench:compare; by itself, with a program that exported_python.py wrote:
//
//   ./bazelw run //tools/bench:exported -- --case=mlp_4x64 --program=/tmp/mlp.pt2 --mode=exported [--steps=5]

#include <torch/torch.h>

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "gpt.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/models/resnet.h"
#include "lockstep/optim/sgd.h"
#include "median.h"
#include "nlohmann/json.hpp"

DEFINE_string(case, "mlp_4x64", "resnet50/b8, gpt_12l/512, mlp_4x64 or add_64");
DEFINE_string(program, "", "the .pt2 file of the case, also for its weights");
DEFINE_string(mode, "exported", "exported, or native: the network in C++");
DEFINE_int32(steps, 5, "steps after the two first, which are not timed; the figure is their median");
DEFINE_bool(turns, false, "measure again, with more steps, for each line of standard input");

namespace lockstep {
namespace {

struct AddsImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) {
    for (int i = 0; i < 64; ++i) x = x + addend;
    return x;
  }

  at::Tensor addend = register_parameter("addend", at::zeros({64}));
};

// A network as a function of its input, and its parameters.
struct Network {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<at::Tensor> parameters;
};

template <typename Module>
Network NetworkOf(const std::shared_ptr<Module>& module) {
  return {[module](const at::Tensor& x) { return module->forward(x); }, module->parameters()};
}

Network NativeNetwork() {
  if (FLAGS_case == "resnet50/b8") return NetworkOf(models::ResNet50().ptr());
  if (FLAGS_case == "gpt_12l/512") return NetworkOf(std::make_shared<GptImpl>());
  if (FLAGS_case == "add_64") return NetworkOf(std::make_shared<AddsImpl>());
  auto layers = std::make_shared<torch::nn::SequentialImpl>();
  for (int i = 0; i < 4; ++i) {
    layers->push_back(torch::nn::Linear(64, 64));
    layers->push_back(torch::nn::ReLU());
  }
  return {[layers](const at::Tensor& x) { return layers->forward(x); }, layers->parameters()};
}

// The program, or the network in C++ with the program's weights.
absl::StatusOr<Network> MakeNetwork() {
  LOCKSTEP_ASSIGN_OR_RETURN(models::exported::ExportedModule program, models::exported::Load(FLAGS_program));
  if (FLAGS_mode == "exported") {
    return Network{[program](const at::Tensor& x) mutable { return program(x).toTensor(); }, program->parameters()};
  }
  Network native = NativeNetwork();
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < native.parameters.size(); ++i) native.parameters[i].copy_(program->parameters()[i]);
  return native;
}

// The input and the classes, drawn as in exported_python.py.
std::pair<at::Tensor, at::Tensor> MakeBatch() {
  at::manual_seed(7);
  if (FLAGS_case == "resnet50/b8") {
    const at::Tensor images = at::randn({8, 3, 224, 224});
    return {images, at::randint(1000, {8}, at::kLong)};
  }
  if (FLAGS_case == "gpt_12l/512") {
    const at::Tensor tokens = at::randint(GptConfig().vocabulary, {4, GptConfig().length}, at::kLong);
    return {tokens, at::randint(GptConfig().vocabulary, {4 * GptConfig().length}, at::kLong)};
  }
  const int64_t rows = FLAGS_case == "add_64" ? 1 : 32;
  const at::Tensor rows_of_numbers = at::randn({rows, 64});
  return {rows_of_numbers, at::randint(64, {rows}, at::kLong)};
}

void Measure(Network& network) {
  const std::pair<at::Tensor, at::Tensor> batch = MakeBatch();
  optim::SGD optimizer(network.parameters, optim::SGDOptions(1e-3).momentum(0.9));
  double last_loss = 0;
  const auto step = [&] {
    const absl::Time start = absl::Now();
    optimizer.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(network.forward(batch.first).flatten(0, -2), batch.second);
    loss.backward();
    optimizer.step();
    const absl::Duration taken = absl::Now() - start;
    last_loss = loss.item<double>();
    return absl::ToDoubleSeconds(taken);
  };
  for (int i = 0; i < 2; ++i) step();
  std::string line;
  do {
    std::vector<double> seconds;
    for (int i = 0; i < FLAGS_steps; ++i) seconds.push_back(step());
    std::cout << nlohmann::json({{"seconds", Median(seconds)}, {"loss", last_loss}}) << std::endl;
  } while (FLAGS_turns && std::getline(std::cin, line));
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"steps", static_cast<double>(FLAGS_steps), 1, 1000000}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("case", FLAGS_case, {"resnet50/b8", "gpt_12l/512", "mlp_4x64", "add_64"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("mode", FLAGS_mode, {"exported", "native"}));
  LOCKSTEP_ASSIGN_OR_RETURN(Network network, MakeNetwork());
  return TorchStatus("exported", [&] { Measure(network); });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times training steps of an exported program, or of the network in C++, and prints a JSON line.

  exported --case=mlp_4x64 --program=mlp.pt2 --mode=exported
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "exported: " << status.message() << std::endl;
  return status.ok() ? 0 : 1;
}
