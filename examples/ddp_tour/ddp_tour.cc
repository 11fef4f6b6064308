// A tour of data-parallel training in three parts, each a whole program in small: the basics, checkpoints, and a model
// that is itself spread over two devices.
//
//   bazel run //examples/ddp_tour                             # all parts, two ranks on this machine
//   bazel run //examples/ddp_tour -- --part=checkpoint --nproc_per_node=4
//   bazel-bin/launch/launch --nproc_per_node=2 bazel-bin/examples/ddp_tour/ddp_tour   # or under torchrun
//   --no-python
//
// prints, on two ranks without a GPU,
//
//   basic: 2 ranks on cpu took one step; it is the step of one process on all 40 samples, within 1.2e-07
//   checkpoint: rank 0 saved, 2 ranks loaded with map_location {"cpu": "cpu"} and went on alike
//   model_parallel: 2 ranks with halves on cpu and cpu took one step alike
//
// Every part checks what it did, and the program exits with an error when it is not so.

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/model_parallel/toy_mp_model.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/examples/ranks/temporary_path.h"
#include "lockstep/launch/spawn.h"

DEFINE_string(part, "all", "basic, checkpoint, model_parallel, several of them with commas, or all.");
DEFINE_int32(nproc_per_node, 2, "Ranks to start; a launcher that has started this program decides itself.");
DEFINE_double(timeout, 60, "Seconds that meeting, or one collective, may take.");

namespace lockstep::examples {
namespace {

constexpr int64_t kBatch = 20;  // samples a rank

// ---- What the parts share.

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl()
      : net1(register_module("net1", torch::nn::Linear(10, 10))),
        net2(register_module("net2", torch::nn::Linear(10, 5))) {}
  at::Tensor forward(const at::Tensor& x) { return net2->forward(net1->forward(x).relu()); }

  torch::nn::Linear net1, net2;
};
TORCH_MODULE(ToyModel);

// This rank's samples, which are other ones on every rank.
struct Batch {
  at::Tensor inputs, labels;
};

Batch BatchOf(int rank, c10::Device device) {
  torch::manual_seed(1000 + rank);
  const at::Tensor inputs = torch::randn({kBatch, 10}), labels = torch::randn({kBatch, 5});
  return {inputs.to(device), labels.to(device)};
}

// One step of training: what a program does thousands of times.
template <typename Model>
void Step(Model& model, torch::optim::Optimizer& optimizer, const Batch& batch) {
  optimizer.zero_grad();
  const at::Tensor outputs = model.forward(batch.inputs);
  torch::nn::functional::mse_loss(outputs, batch.labels.to(outputs.device())).backward();
  optimizer.step();
}

void Say(const comm::ProcessGroup& group, const std::string& line) {
  if (group.rank() == 0) std::cout << line << std::endl;
}

// ---- Part 1: the basics. Wrap the model, train it as if it were alone, and all ranks take the same step: that of the
// mean gradient, so that of one process which has all the samples.

absl::Status Basic(comm::ProcessGroup& group, const comm::RankEnvironment& environment) {
  const c10::Device device = RankDevices(environment)[0];
  ToyModel model;  // initialised differently on each rank; Wrap gives all of them rank 0's
  model->to(device);
  ddp::Options options;
  if (device.is_cuda()) options.device_ids = {device};
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(model, &group, options));
  ToyModel alone;
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*alone, checkpoint::StateDict(*model)));

  torch::optim::SGD optimizer(ddp_model.parameters(), /*lr=*/0.1);
  Step(ddp_model, optimizer, BatchOf(group.rank(), device));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));

  std::vector<at::Tensor> inputs, labels;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Batch batch = BatchOf(rank, c10::kCPU);
    inputs.push_back(batch.inputs);
    labels.push_back(batch.labels);
  }
  torch::optim::SGD alone_optimizer(alone->parameters(), /*lr=*/0.1);
  Step(*alone, alone_optimizer, {at::cat(inputs), at::cat(labels)});
  const double difference = MaxDifference(alone->parameters(), ddp_model.parameters());
  if (!(difference < 1e-6)) {
    return absl::InternalError(absl::StrCat("one process on all samples ends ", difference, " away"));
  }
  Say(group, absl::StrCat("basic: ", group.size(), " ranks on ", c10::DeviceTypeName(device.type(), true),
                          " took one step; it is the step of one process on all ", kBatch * group.size(),
                          " samples, within ", absl::SixDigits(difference)));
  return absl::OkStatus();
}

// ---- Part 2: checkpoints. All ranks hold the same, so one saves; the others must not read before it has; and each
// loads to its own devices, whatever rank 0 saved from.

constexpr char kTemporary[] = "lockstep_ddp_tour";

checkpoint::MapLocation::DeviceMap FromRankZero(c10::Device mine) {
  return {{mine.is_cpu() ? "cpu" : "cuda:0", mine.str()}};
}

// Where rank 0 saves, which it tells the others: under a launcher each rank has its own temporary path.
absl::StatusOr<std::string> CheckpointPath(comm::ProcessGroup& group) {
  std::string path = TemporaryPath(kTemporary).path();
  LOCKSTEP_RETURN_IF_ERROR(group.BroadcastBytes(path, 0));
  return path;
}

void Overwrite(torch::nn::Module& module, double value) {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& parameter : module.parameters()) parameter.fill_(value);
}

absl::Status Checkpoint(comm::ProcessGroup& group, const comm::RankEnvironment& environment) {
  const c10::Device device = RankDevices(environment)[0];
  ToyModel model;
  model->to(device);
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(model, &group));
  torch::optim::SGD optimizer(ddp_model.parameters(), /*lr=*/0.1);
  Step(ddp_model, optimizer, BatchOf(group.rank(), device));
  const at::Tensor trained = Flat(ddp_model.parameters());

  LOCKSTEP_ASSIGN_OR_RETURN(const std::string path, CheckpointPath(group));
  if (group.rank() == 0) LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(path, checkpoint::StateDict(*model)));
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // the file is there

  Overwrite(*model, group.rank());  // as if this were a new run
  const checkpoint::MapLocation::DeviceMap map = FromRankZero(device);
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value state_dict, checkpoint::Load(path, {map}));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*model, state_dict));
  if (!Flat(ddp_model.parameters()).equal(trained))
    return absl::InternalError("it loaded other values than were saved");

  Step(ddp_model, optimizer, BatchOf(group.rank(), device));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));
  Say(group, absl::StrCat("checkpoint: rank 0 saved, ", group.size(), " ranks loaded with map_location {\"",
                          map[0].first, "\": \"", map[0].second, "\"} and went on alike"));
  return absl::OkStatus();
}

// ---- Part 3: a model on two devices. DistributedDataParallel leaves such a model's devices alone: it is wrapped
// without device_ids, and its forward moves what it computes from one device to the next.

absl::Status ModelParallel(comm::ProcessGroup& group, const comm::RankEnvironment& environment) {
  const std::vector<c10::Device> devices = RankDevices(environment, 2);
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(ToyMpModel(devices[0], devices[1]), &group));
  torch::optim::SGD optimizer(ddp_model.parameters(), /*lr=*/0.1);
  const at::Tensor before = Flat(ddp_model.parameters());
  Step(ddp_model, optimizer, BatchOf(group.rank(), c10::kCPU));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));
  if (Flat(ddp_model.parameters()).equal(before)) return absl::InternalError("the step changed nothing");
  Say(group, absl::StrCat("model_parallel: ", group.size(), " ranks with halves on ", devices[0].str(), " and ",
                          devices[1].str(), " took one step alike"));
  return absl::OkStatus();
}

// ---- Running them.

struct Part {
  const char* name;
  absl::Status (*run)(comm::ProcessGroup&, const comm::RankEnvironment&);
};
constexpr Part kParts[] = {{"basic", &Basic}, {"checkpoint", &Checkpoint}, {"model_parallel", &ModelParallel}};

absl::Status CheckParts(const std::vector<std::string>& wanted) {
  for (const std::string& name : wanted) {
    bool known = name == "all";
    for (const Part& part : kParts) known |= name == part.name;
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("--part=", name, ": expected basic, checkpoint, model_parallel or all"));
    }
  }
  return absl::OkStatus();
}

absl::Status TourAsRank(const std::vector<std::string>& wanted) {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment, comm::ReadRankEnvironment());
  comm::InitOptions options;
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  for (const Part& part : kParts) {
    bool run = false;
    for (const std::string& name : wanted) run |= name == "all" || name == part.name;
    if (!run) continue;
    absl::Status status;
    const absl::Status thrown = TorchStatus("", [&] { status = part.run(*group, environment); });
    status.Update(thrown);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(FinishRank(group.get(), status), part.name));
  }
  return absl::OkStatus();
}

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
A tour of data-parallel training in three parts: the basics, checkpoints, and a
model that is spread over two devices. Every part checks its results.

  ddp_tour                               all parts, two ranks on this machine
  ddp_tour --part=checkpoint --nproc_per_node=4
  launch --nproc_per_node=2 ddp_tour     under a launcher, such as torchrun
)";
  return usage;
}

absl::Status Run() {
  const std::vector<std::string> wanted = absl::StrSplit(FLAGS_part, ',');
  LOCKSTEP_RETURN_IF_ERROR(CheckParts(wanted));
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckSeconds("timeout", FLAGS_timeout));
  const TemporaryPath checkpoint(kTemporary);  // removed when every rank has ended
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [&](int) { return TourAsRank(wanted); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  lockstep::ParseCommandLine(argc, argv, lockstep::examples::Usage());
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << absl::StrCat("ddp_tour: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
