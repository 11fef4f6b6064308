// Trains a line on every rank's share of the samples, and checks that a checkpoint has what was trained.
//
// Run by hand, it starts two ranks itself; under a launcher it is one rank. It prints
//
//   2 ranks after 20 epochs: weight 1 -2 3, bias 0.5; checkpoint saved and loaded
//
// and fails if the ranks' parameters differ in any bit, or differ from those that the samples were made with.

#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/distributed_sampler.h"

namespace {

using lockstep::checkpoint::Value;
using lockstep::comm::ProcessGroup;
using lockstep::sampler::DistributedSampler;

constexpr int kRanks = 2;
constexpr int64_t kSamples = 1024;
constexpr size_t kBatch = 32;
constexpr int64_t kEpochs = 20;

// Weight and bias behind the samples.
torch::Tensor Truth() { return torch::tensor({1.0f, -2.0f, 3.0f, 0.5f}); }

absl::Status CheckParameters(ProcessGroup& group, const torch::Tensor& parameters) {
  std::vector<torch::Tensor> all(group.size());
  for (torch::Tensor& of_rank : all) of_rank = torch::empty_like(parameters);
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(all, parameters));
  for (const torch::Tensor& of_rank : all) {
    if (!of_rank.equal(parameters)) return absl::InternalError("the ranks hold different parameters");
  }
  if (!torch::allclose(parameters, Truth(), /*rtol=*/0, /*atol=*/1e-4)) {
    return absl::InternalError("the parameters are not those that the samples were made with");
  }
  return absl::OkStatus();
}

absl::Status CheckCheckpoint(const torch::nn::Linear& net) {
  const std::string path = "trainer.pt";
  LOCKSTEP_RETURN_IF_ERROR(lockstep::checkpoint::Save(path, lockstep::checkpoint::StateDict(*net)));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state, lockstep::checkpoint::Load(path));
  std::remove(path.c_str());
  torch::nn::Linear loaded(3, 1);
  LOCKSTEP_RETURN_IF_ERROR(lockstep::checkpoint::LoadStateDict(*loaded, state));
  if (!loaded->weight.equal(net->weight)) return absl::InternalError("the checkpoint has another weight");
  return absl::OkStatus();
}

absl::Status Train() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<ProcessGroup> group, lockstep::comm::InitProcessGroup({}));
  torch::manual_seed(0);  // the same samples on every rank
  const torch::Tensor x = torch::randn({kSamples, 3});
  const torch::Tensor y = torch::matmul(x, Truth().slice(0, 0, 3)) + Truth()[3];
  LOCKSTEP_ASSIGN_OR_RETURN(DistributedSampler sampler,
                            DistributedSampler::Create(kSamples, {group->size(), group->rank()}));
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, lockstep::ddp::Wrap(torch::nn::Linear(3, 1), group.get()));
  torch::optim::SGD optimizer(ddp.parameters(), /*lr=*/0.1);
  LOCKSTEP_RETURN_IF_ERROR(lockstep::TorchStatus("training", [&] {
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      sampler.set_epoch(epoch);
      const torch::Tensor indices = torch::tensor(sampler.Indices());
      for (const torch::Tensor& batch : indices.split(kBatch)) {
        optimizer.zero_grad();
        torch::mse_loss(ddp(x.index_select(0, batch)).squeeze(1), y.index_select(0, batch)).backward();
        optimizer.step();
      }
    }
  }));
  const torch::Tensor p = torch::nn::utils::parameters_to_vector(ddp.parameters()).detach();
  LOCKSTEP_RETURN_IF_ERROR(CheckParameters(*group, p));
  if (group->rank() != 0) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckCheckpoint(ddp.module()));
  const auto at = [&](int i) { return std::round(p[i].item<float>() * 1e3f) / 1e3f; };
  std::cout << group->size() << " ranks after " << kEpochs << " epochs: weight " << at(0) << " " << at(1) << " "
            << at(2) << ", bias " << at(3) << "; checkpoint saved and loaded" << std::endl;
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = lockstep::launch::SpawnUnlessLaunched(kRanks, [](int) { return Train(); });
  if (!status.ok()) std::cerr << "trainer: " << status.message() << std::endl;
  return lockstep::launch::ExitCode(status);
}
