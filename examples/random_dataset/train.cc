// The program that PyTorch's tutorials start by torch.distributed.launch, in C++: a RandomDataset, a
// DistributedSampler, a model on the device of its local rank, and DistributedDataParallel. README.md has the commands
// for one machine and for two. On two ranks without a GPU it prints
//
//   rank 0 of 2 is local rank 0 of node 0, on cpu
//   rank 1 of 2 is local rank 1 of node 0, on cpu
//   epoch 1: all 100 samples seen once, and 0 again as padding; mean loss of rank 0 4.77362
//   ...
//   epoch 5: all 100 samples seen once, and 0 again as padding; mean loss of rank 0 0.00273667
//   the ranks end alike to the bit; one process with the batches of all ranks ends 1.19209e-07 away
//
// and exits with an error when any of that is not so.

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/DeviceGuard.h>
#include <gflags/gflags.h>
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/torch_sampler.h"

DEFINE_int32(local_rank, -1, "The rank among those of this machine, from launchers that say it so; else LOCAL_RANK.");
DEFINE_int64(size, 100, "Samples of the dataset.");
DEFINE_int64(batch_size, 15, "Samples a step of each rank.");
DEFINE_int64(epochs, 5, "How often to go through the samples.");
DEFINE_int32(nproc_per_node, 2, "Ranks to start; a launcher that has started this program decides itself.");
DEFINE_double(timeout, 60, "Seconds that meeting, or one collective, may take.");

namespace lockstep::examples {
namespace {

constexpr double kLearningRate = 0.1;

struct Batch {
  at::Tensor indices, inputs, labels;  // int64 [batch], float32 [batch, 5], float32 [batch, 1]
};

// Normally distributed numbers, the same on every rank. A label is the sum of its sample, so there is something to
// learn.
class RandomDataset : public torch::data::datasets::BatchDataset<RandomDataset, Batch> {
 public:
  explicit RandomDataset(int64_t size) : inputs_(torch::randn({size, 5}, at::detail::createCPUGenerator(0))) {}

  Batch get_batch(c10::ArrayRef<size_t> indices) override {
    return BatchOf(torch::tensor(std::vector<int64_t>(indices.begin(), indices.end())));
  }
  std::optional<size_t> size() const override { return inputs_.size(0); }

  Batch BatchOf(const at::Tensor& indices) const {
    const at::Tensor inputs = inputs_.index_select(0, indices);
    return {indices, inputs, inputs.sum(1, /*keepdim=*/true)};
  }

 private:
  at::Tensor inputs_;
};

// One step of training. Returns the loss.
template <typename Model>
double Step(Model& model, torch::optim::Optimizer& optimizer, const Batch& batch, c10::Device device) {
  optimizer.zero_grad();
  const at::Tensor outputs = model.forward(batch.inputs.to(device));
  const at::Tensor loss = torch::nn::functional::mse_loss(outputs, batch.labels.to(device));
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

// Returns the samples that each rank saw, in order: int64 [ranks, samples of a rank].
absl::StatusOr<at::Tensor> Gather(const std::vector<at::Tensor>& batches, comm::ProcessGroup& group) {
  const at::Tensor mine = at::cat(batches);
  const at::Tensor all = at::empty({group.size(), mine.numel()}, at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(all.unbind(), mine));
  return all;
}

// Checks that each sample was seen once. If the ranks cannot share the samples evenly, some are seen again, until every
// rank has as many. Returns their number.
absl::StatusOr<int64_t> CheckSeen(const at::Tensor& seen) {
  const int64_t ranks = seen.size(0), all = seen.numel(), expected = (FLAGS_size + ranks - 1) / ranks * ranks;
  if (all != expected) return absl::InternalError(absl::StrCat(all, " samples were seen, expected ", expected));
  const at::Tensor counts = seen.flatten().bincount({}, FLAGS_size);
  const int64_t least = counts.min().item<int64_t>(), most = counts.max().item<int64_t>();
  if (least < all / FLAGS_size || most > (all + FLAGS_size - 1) / FLAGS_size) {
    return absl::InternalError(absl::StrCat("samples were seen from ", least, " to ", most, " times"));
  }
  return all - FLAGS_size;
}

// Rank 0 prints the place of every rank.
absl::Status SayPlaces(const comm::RankEnvironment& environment, c10::Device device, comm::ProcessGroup& group) {
  const std::string node = environment.node_rank ? absl::StrCat("node ", *environment.node_rank) : "its node";
  const std::string place = absl::StrCat("local rank ", environment.local_rank, " of ", node, ", on ", device.str());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> places, group.AllGatherBytes(place));
  for (int rank = 0; rank < group.size(); ++rank) {
    Say(group, absl::StrCat("rank ", rank, " of ", group.size(), " is ", places[rank]));
  }
  return absl::OkStatus();
}

absl::Status Train(c10::Device device, comm::ProcessGroup& group) {
  const RandomDataset dataset(FLAGS_size);
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            sampler::DistributedSampler::Create(FLAGS_size, {group.size(), group.rank()}));
  const auto loader = torch::data::make_data_loader(dataset, sampler::TorchSampler(sampler), FLAGS_batch_size);

  torch::manual_seed(group.rank());
  torch::nn::Linear model(5, 1);  // initialised differently on each rank; Wrap gives all of them rank 0's
  model->to(device);
  ddp::Options options;
  if (device.is_cuda()) options.device_ids = {device};
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(model, &group, options));
  torch::optim::SGD optimizer(ddp_model.parameters(), kLearningRate);
  const auto alone = std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->clone(c10::Device(c10::kCPU)));
  torch::optim::SGD alone_optimizer(alone->parameters(), kLearningRate);

  for (int64_t epoch = 0; epoch < FLAGS_epochs; ++epoch) {
    sampler.set_epoch(epoch);  // another order of samples
    double loss = 0;
    std::vector<at::Tensor> seen_here;
    for (const Batch& batch : *loader) {
      loss += Step(ddp_model, optimizer, batch, device);
      seen_here.push_back(batch.indices);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor seen, Gather(seen_here, group));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t padding, CheckSeen(seen));
    Say(group, absl::StrCat("epoch ", epoch + 1, ": all ", FLAGS_size, " samples seen once, and ", padding,
                            " again as padding; mean loss of rank 0 ", loss / static_cast<double>(seen_here.size())));
    // One process does the same. Its batches are the batches of all ranks.
    for (const at::Tensor& indices : seen.split(FLAGS_batch_size, /*dim=*/1)) {
      Step(*alone, alone_optimizer, dataset.BatchOf(indices.flatten()), c10::kCPU);
    }
  }

  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));
  const double difference = MaxDifference(ddp_model.parameters(), alone->parameters());
  const std::string end = absl::StrCat("one process with the batches of all ranks ends ", difference, " away");
  if (!(difference < 1e-6)) return absl::InternalError(end);
  Say(group, absl::StrCat("the ranks end alike to the bit; ", end));
  return absl::OkStatus();
}

absl::Status TrainAsRank() {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment, comm::ReadRankEnvironment());
  const c10::Device device = RankDevices(environment)[0];
  const c10::DeviceGuard on_device(device);  // NCCL wants to know before it starts
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup({.timeout = absl::Seconds(FLAGS_timeout)}));
  return AsRank(group.get(), [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(SayPlaces(environment, device, *group));
    return Train(device, *group);
  });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Trains a linear model on random samples, data-parallel, as the program of
torch.distributed.launch's tutorial does, and checks that every sample is seen.

  train                                two ranks on this machine
  launch --nproc_per_node=2 train      under a launcher, such as torchrun
)";
  return ExampleMain(argc, argv, usage, {"size", "batch_size", "epochs", "nproc_per_node"}, [] {
    // torch.distributed.launch may give the local rank on the command line.
    if (FLAGS_local_rank >= 0) setenv("LOCAL_RANK", std::to_string(FLAGS_local_rank).c_str(), /*overwrite=*/1);
    return lockstep::launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return TrainAsRank(); });
  });
}
