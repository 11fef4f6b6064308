// A tour of data-parallel training in three parts, each a whole program in small: the basics, checkpoints, and a model
// that is itself spread over two devices.
//
//   bazel run //examples/ddp_tour       # all parts, two ranks on this machine; --help lists more
//
// prints, on two ranks without a GPU,
//
//   basic: 2 ranks on cpu took one step; it is the step of one process on all 40 samples, within 1.2e-07
//   checkpoint: rank 0 saved, 2 ranks loaded with map_location {"cpu": "cpu"} and went on alike
//   model_parallel: 2 ranks with halves on cpu and cpu took one step alike
//
// Every part checks what it did, and the program exits with an error when it is not so.

#include <c10/core/DeviceGuard.h>
#include <gflags/gflags.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/examples/ranks/temporary_path.h"
#include "lockstep/launch/spawn.h"

DEFINE_string(part, "all", "basic, checkpoint, model_parallel, several of them with commas, or all.");
DEFINE_int32(nproc_per_node, 2, "Ranks to start; a launcher that has started this program decides itself.");
DEFINE_double(timeout, 60, "Seconds that meeting, or one collective, may take.");

namespace lockstep::examples {
namespace {

constexpr int64_t kBatch = 20;  // samples a rank
constexpr double kLearningRate = 0.1;

// The devices of a rank: two GPUs if there are enough for all ranks, or one GPU, or the CPU.
using Devices = std::vector<c10::Device>;

// ---- What the parts share.

struct ToyModelImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return net2->forward(net1->forward(x).relu()); }

  torch::nn::Linear net1 = register_module("net1", torch::nn::Linear(10, 10));
  torch::nn::Linear net2 = register_module("net2", torch::nn::Linear(10, 5));
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

// ---- Part 1: the basics. Wrap the model, train it as if it were alone, and all ranks take the same step: that of the
// mean gradient, so that of one process which has all the samples.

absl::Status Basic(comm::ProcessGroup& group, const Devices& devices) {
  ToyModel model;  // initialised differently on each rank; Wrap gives all of them rank 0's
  model->to(devices[0]);
  ddp::Options options;
  if (devices[0].is_cuda()) options.device_ids = {devices[0]};
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(model, &group, options));
  ToyModel alone;
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*alone, checkpoint::StateDict(*model)));

  torch::optim::SGD optimizer(ddp_model.parameters(), kLearningRate);
  Step(ddp_model, optimizer, BatchOf(group.rank(), devices[0]));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));

  std::vector<at::Tensor> inputs, labels;
  for (int rank = 0; rank < group.size(); ++rank) {
    const Batch batch = BatchOf(rank, c10::kCPU);
    inputs.push_back(batch.inputs);
    labels.push_back(batch.labels);
  }
  torch::optim::SGD alone_optimizer(alone->parameters(), kLearningRate);
  Step(*alone, alone_optimizer, {at::cat(inputs), at::cat(labels)});
  const double difference = MaxDifference(alone->parameters(), ddp_model.parameters());
  if (!(difference < 1e-6)) {
    return absl::InternalError(absl::StrCat("one process on all samples ends ", difference, " away"));
  }
  Say(group, absl::StrCat("basic: ", group.size(), " ranks on ", c10::DeviceTypeName(devices[0].type(), true),
                          " took one step; it is the step of one process on all ", kBatch * group.size(),
                          " samples, within ", difference));
  return absl::OkStatus();
}

// ---- Part 2: checkpoints. All ranks hold the same, so one saves; the others must not read before it has; and each
// loads to its own devices, whatever rank 0 saved from.

constexpr char kTemporary[] = "lockstep_ddp_tour";

absl::Status Checkpoint(comm::ProcessGroup& group, const Devices& devices) {
  ToyModel model;
  model->to(devices[0]);
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(model, &group));
  torch::optim::SGD optimizer(ddp_model.parameters(), kLearningRate);
  Step(ddp_model, optimizer, BatchOf(group.rank(), devices[0]));
  const at::Tensor trained = Flat(ddp_model.parameters());

  std::string path = TemporaryPath(kTemporary).path();  // under a launcher each rank has its own; rank 0's is taken
  LOCKSTEP_RETURN_IF_ERROR(group.BroadcastBytes(path, 0));
  if (group.rank() == 0) LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(path, checkpoint::StateDict(*model)));
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // the file is there

  for (const at::Tensor& parameter : model->parameters()) parameter.detach().fill_(group.rank());  // as in a new run
  const checkpoint::MapLocation::DeviceMap map = {{devices[0].is_cpu() ? "cpu" : "cuda:0", devices[0].str()}};
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value state_dict, checkpoint::Load(path, {map}));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*model, state_dict));
  if (!Flat(ddp_model.parameters()).equal(trained))
    return absl::InternalError("it loaded other values than were saved");

  Step(ddp_model, optimizer, BatchOf(group.rank(), devices[0]));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));
  Say(group, absl::StrCat("checkpoint: rank 0 saved, ", group.size(), " ranks loaded with map_location {\"",
                          map[0].first, "\": \"", map[0].second, "\"} and went on alike"));
  return absl::OkStatus();
}

// ---- Part 3: a model on two devices. DistributedDataParallel leaves such a model's devices alone: it is wrapped
// without device_ids, and its forward moves what it computes from one device to the next. Backward moves the gradients
// back by itself.

struct ToyMpModelImpl : ToyModelImpl {
  ToyMpModelImpl(c10::Device device0, c10::Device device1) : device0(device0), device1(device1) {
    net1->to(device0);
    net2->to(device1);
  }
  at::Tensor forward(const at::Tensor& x) { return net2->forward(net1->forward(x.to(device0)).relu().to(device1)); }

  c10::Device device0, device1;
};
TORCH_MODULE(ToyMpModel);

absl::Status ModelParallel(comm::ProcessGroup& group, const Devices& devices) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(ToyMpModel(devices.front(), devices.back()), &group));
  LOCKSTEP_ASSIGN_OR_RETURN(auto unsplit, ddp::Wrap(ToyModel(), &group));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*unsplit.module(), checkpoint::StateDict(*ddp_model.module())));
  torch::optim::SGD optimizer(ddp_model.parameters(), kLearningRate);
  torch::optim::SGD unsplit_optimizer(unsplit.parameters(), kLearningRate);
  const at::Tensor before = Flat(ddp_model.parameters());
  Step(ddp_model, optimizer, BatchOf(group.rank(), c10::kCPU));
  Step(unsplit, unsplit_optimizer, BatchOf(group.rank(), c10::kCPU));
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));
  if (Flat(ddp_model.parameters()).equal(before)) return absl::InternalError("the step changed nothing");
  const double difference = MaxDifference(ddp_model.parameters(), unsplit.parameters());
  if (!(difference <= (devices[0].is_cpu() ? 0 : 1e-5))) {  // GPUs round differently
    return absl::InternalError(absl::StrCat("the model on one device ends ", difference, " away"));
  }
  Say(group, absl::StrCat("model_parallel: ", group.size(), " ranks with halves on ", devices.front().str(), " and ",
                          devices.back().str(), " took one step alike"));
  return absl::OkStatus();
}

// ---- Running them.

struct Part {
  const char* name;
  absl::Status (*run)(comm::ProcessGroup&, const Devices&);
};
constexpr Part kParts[] = {{"basic", &Basic}, {"checkpoint", &Checkpoint}, {"model_parallel", &ModelParallel}};

absl::Status TourAsRank(const std::vector<std::string>& wanted) {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment, comm::ReadRankEnvironment());
  Devices devices = RankDevices(environment, 2);
  if (devices[0].is_cpu()) devices = RankDevices(environment);
  const c10::DeviceGuard on_first_device(devices[0]);  // NCCL wants to know before it starts
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup({.timeout = absl::Seconds(FLAGS_timeout)}));
  for (const Part& part : kParts) {
    if (!absl::c_linear_search(wanted, part.name) && !absl::c_linear_search(wanted, "all")) continue;
    LOCKSTEP_RETURN_IF_ERROR(Annotate(AsRank(group.get(), [&] { return part.run(*group, devices); }), part.name));
  }
  return absl::OkStatus();
}

absl::Status Run() {
  const std::vector<std::string> wanted = absl::StrSplit(FLAGS_part, ',');
  for (const std::string& name : wanted) {
    LOCKSTEP_RETURN_IF_ERROR(CheckChoice("part", name, {"basic", "checkpoint", "model_parallel", "all"}));
  }
  const TemporaryPath checkpoint(kTemporary);  // removed when every rank has ended
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [&](int) { return TourAsRank(wanted); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
A tour of data-parallel training in three parts: the basics, checkpoints, and a
model that is spread over two devices. Every part checks its results.

  ddp_tour                               all parts, two ranks on this machine
  ddp_tour --part=checkpoint --nproc_per_node=4
  launch --nproc_per_node=2 ddp_tour     under a launcher, such as torchrun
)";
  return ExampleMain(argc, argv, usage, {"nproc_per_node"}, Run);
}
