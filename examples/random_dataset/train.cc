// The program that PyTorch's tutorials start by torch.distributed.launch, in C++: a RandomDataset, a
// DistributedSampler, a model on the device of its local rank, and DistributedDataParallel.
//
//   bazel run //examples/random_dataset:train     # two ranks on this machine
//   bazel-bin/launch/launch --nproc_per_node=2 bazel-bin/examples/random_dataset/train
//   python -m torch.distributed.launch --nproc_per_node=2 --use_env --no-python bazel-bin/examples/random_dataset/train
//
// or on two machines, of which the first has the address 192.168.1.1,
//
//   launch --nproc_per_node=2 --nnodes=2 --node_rank=0 --master_addr=192.168.1.1 --master_port=1234 train   # on node 0
//   launch --nproc_per_node=2 --nnodes=2 --node_rank=1 --master_addr=192.168.1.1 --master_port=1234 train   # on node 1
//
// prints, from rank 0, on two ranks without a GPU,
//
//   rank 0 of 2 is local rank 0 of node 0, on cpu
//   rank 1 of 2 is local rank 1 of node 0, on cpu
//   epoch 1: all 100 samples seen once, and 0 again as padding; mean loss of rank 0 4.77362
//   ...
//   epoch 5: all 100 samples seen once, and 0 again as padding; mean loss of rank 0 0.00273667
//   the ranks end alike to the bit; one process with the batches of all ranks ends 1.19209e-07 away
//
// and exits with an error when any of that is not so.

#include <c10/core/DeviceGuard.h>
#include <gflags/gflags.h>
#include <torch/data/dataloader.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/random_dataset/random_dataset.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/devices.h"
#include "lockstep/examples/ranks/finish.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/distributed_batch_sampler.h"
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

constexpr int64_t kFeatures = 5;
constexpr double kLearningRate = 0.1;

// Where this rank is: as the environment says it, but for a --local-rank=1 or --local_rank=1 on the command line, as
// torch.distributed.launch gives it.
absl::StatusOr<comm::RankEnvironment> Environment() {
  return comm::ReadRankEnvironment([](absl::string_view name) -> std::optional<std::string> {
    if (name == "LOCAL_RANK" && FLAGS_local_rank >= 0) return absl::StrCat(FLAGS_local_rank);
    return comm::ProcessEnvironment(name);
  });
}

void Say(const comm::ProcessGroup& group, const std::string& line) {
  if (group.rank() == 0) std::cout << line << std::endl;
}

// Every rank's `text`, printed by rank 0.
absl::Status SayFromAll(comm::ProcessGroup& group, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> lines, group.AllGatherBytes(text));
  for (size_t rank = 0; rank < lines.size(); ++rank) {
    Say(group, absl::StrCat("rank ", rank, " of ", lines.size(), " is ", lines[rank]));
  }
  return absl::OkStatus();
}

std::string Place(const comm::RankEnvironment& environment, c10::Device device) {
  return absl::StrCat("local rank ", environment.local_rank, " of ",
                      environment.node_rank ? absl::StrCat("node ", *environment.node_rank) : "its node", ", on ",
                      device.str());
}

// ---- Training.

sampler::DistributedSamplerOptions SamplerOptions(int rank, int ranks) {
  sampler::DistributedSamplerOptions options;
  options.num_replicas = ranks;
  options.rank = rank;
  return options;
}

// One step of training; the loss.
template <typename Model>
double Step(Model& model, torch::optim::Optimizer& optimizer, const RandomBatch& batch, c10::Device device) {
  optimizer.zero_grad();
  const at::Tensor outputs = model.forward(batch.inputs.to(device));
  const at::Tensor loss = torch::nn::functional::mse_loss(outputs, batch.labels.to(device));
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

// A rank's samples and loss in an epoch.
struct Epoch {
  std::vector<int64_t> seen;  // the samples, in order
  double loss = 0;            // the mean over this rank's steps
};

template <typename Model, typename Loader>
Epoch TrainEpoch(Model& model, torch::optim::Optimizer& optimizer, Loader& loader, c10::Device device) {
  Epoch epoch;
  int steps = 0;
  for (const RandomBatch& batch : loader) {
    epoch.loss += Step(model, optimizer, batch, device);
    epoch.seen.insert(epoch.seen.end(), batch.indices.begin(), batch.indices.end());
    ++steps;
  }
  epoch.loss /= steps;
  return epoch;
}

// ---- What must hold.

// How often the ranks together have seen each sample.
absl::StatusOr<std::vector<int64_t>> CountSeen(const std::vector<int64_t>& mine, comm::ProcessGroup& group) {
  const absl::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(int64_t));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> all, group.AllGatherBytes(bytes));
  std::vector<int64_t> counts(FLAGS_size);
  for (const std::string& seen : all) {
    std::vector<int64_t> indices(seen.size() / sizeof(int64_t));
    std::memcpy(indices.data(), seen.data(), seen.size());
    for (const int64_t index : indices) ++counts.at(index);
  }
  return counts;
}

// Each sample is seen once; and where the ranks cannot share them evenly, as many again as fill the last row, one of
// each rank. Returns how many those are.
absl::StatusOr<int64_t> CheckSeen(const std::vector<int64_t>& counts, int ranks) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  const int64_t size = static_cast<int64_t>(counts.size());
  const int64_t expected = (size + ranks - 1) / ranks * ranks;
  if (all != expected) return absl::InternalError(absl::StrCat(all, " samples were seen, expected ", expected));
  for (int64_t i = 0; i < size; ++i) {
    if (counts[i] != all / size && counts[i] != (all + size - 1) / size) {
      return absl::InternalError(absl::StrCat("sample ", i, " was seen ", counts[i], " times"));
    }
  }
  return all - size;
}

// Trains `model` in one process that takes, as its step's batch, the batches of all ranks.
absl::Status TrainInOneProcess(torch::nn::Linear& model, RandomDataset dataset, int ranks) {
  std::vector<sampler::DistributedBatchSampler> shares;
  for (int rank = 0; rank < ranks; ++rank) {
    sampler::DistributedBatchSamplerOptions options;
    options.sampler = SamplerOptions(rank, ranks);
    options.batch_size = FLAGS_batch_size;
    LOCKSTEP_ASSIGN_OR_RETURN(auto share, sampler::DistributedBatchSampler::Create(FLAGS_size, options));
    shares.push_back(std::move(share));
  }
  torch::optim::SGD optimizer(model->parameters(), kLearningRate);
  for (int64_t epoch = 0; epoch < FLAGS_epochs; ++epoch) {
    for (auto& share : shares) {
      share.set_epoch(epoch);
      share.reset();
    }
    for (int64_t step = 0; step < shares[0].num_batches(); ++step) {
      std::vector<size_t> joined;
      for (auto& share : shares) {
        const std::vector<size_t> batch = *share.next();
        joined.insert(joined.end(), batch.begin(), batch.end());
      }
      Step(*model, optimizer, dataset.get_batch(joined), c10::kCPU);
    }
  }
  return absl::OkStatus();
}

torch::nn::Linear CopyOnCpu(const torch::nn::Linear& model) {
  return std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->clone(c10::Device(c10::kCPU)));
}

// ---- Running it.

absl::Status Train(const comm::RankEnvironment& environment, c10::Device device, comm::ProcessGroup& group) {
  LOCKSTEP_RETURN_IF_ERROR(SayFromAll(group, Place(environment, device)));

  const RandomDataset dataset(FLAGS_size, kFeatures, /*seed=*/0);
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto sampler, sampler::DistributedSampler::Create(FLAGS_size, SamplerOptions(group.rank(), group.size())));
  auto loader = torch::data::make_data_loader(dataset, sampler::TorchSampler(sampler), FLAGS_batch_size);

  torch::manual_seed(group.rank());
  torch::nn::Linear model(kFeatures, 1);  // initialised differently on each rank; Wrap gives all of them rank 0's
  model->to(device);
  ddp::Options options;
  if (device.is_cuda()) options.device_ids = {device};
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp_model, ddp::Wrap(model, &group, options));
  torch::nn::Linear alone = CopyOnCpu(model);

  torch::optim::SGD optimizer(ddp_model.parameters(), kLearningRate);
  for (int64_t i = 0; i < FLAGS_epochs; ++i) {
    sampler.set_epoch(i);  // another order of samples
    const Epoch epoch = TrainEpoch(ddp_model, optimizer, *loader, device);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, CountSeen(epoch.seen, group));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t padding, CheckSeen(counts, group.size()));
    Say(group, absl::StrCat("epoch ", i + 1, ": all ", FLAGS_size, " samples seen once, and ", padding,
                            " again as padding; mean loss of rank 0 ", epoch.loss));
  }

  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp_model.parameters(), group));
  LOCKSTEP_RETURN_IF_ERROR(TrainInOneProcess(alone, dataset, group.size()));
  const double difference = MaxDifference(ddp_model.parameters(), alone->parameters());
  if (!(difference < 1e-6)) {
    return absl::InternalError(absl::StrCat("one process with the batches of all ranks ends ", difference, " away"));
  }
  Say(group, absl::StrCat("the ranks end alike to the bit; one process with the batches of all ranks ends ",
                          absl::SixDigits(difference), " away"));
  return absl::OkStatus();
}

absl::Status TrainAsRank() {
  LOCKSTEP_ASSIGN_OR_RETURN(const comm::RankEnvironment environment, Environment());
  const c10::Device device = RankDevices(environment)[0];
  const c10::DeviceGuard on_device(device);  // NCCL wants to know before it starts
  comm::InitOptions options;                 // env://: the launcher says where the ranks meet
  options.timeout = absl::Seconds(FLAGS_timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group, comm::InitProcessGroup(options));
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] { status = Train(environment, device, *group); });
  status.Update(thrown);
  return FinishRank(group.get(), status);
}

ProgramUsage Usage() {
  ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Trains a linear model on random samples, data-parallel, as the program of
torch.distributed.launch's tutorial does, and checks that every sample is seen.

  train                                two ranks on this machine
  launch --nproc_per_node=2 train      under a launcher, such as torchrun
)";
  return usage;
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"size", FLAGS_size * 1.0, 1},
                                        {"batch_size", FLAGS_batch_size * 1.0, 1},
                                        {"epochs", FLAGS_epochs * 1.0, 1},
                                        {"nproc_per_node", FLAGS_nproc_per_node * 1.0, 1}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckSeconds("timeout", FLAGS_timeout));
  return launch::SpawnUnlessLaunched(FLAGS_nproc_per_node, [](int) { return TrainAsRank(); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  // A broken connection is one line from us; LibTorch would log the same twice more, with a C++ stack.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  lockstep::ParseCommandLine(argc, argv, lockstep::examples::Usage());
  const absl::Status status = lockstep::examples::Run();
  if (!status.ok()) std::cerr << absl::StrCat("train: ", status.message(), "\n");
  return lockstep::launch::ExitCode(status);
}
