// Trains one step on two ranks in a program that uses protobuf, its own Abseil and its own glog beside Lockstep. It
// prints
//
//   2 ranks after "step 1 of mixed_libraries": weight 0.5, saved
//
// and fails if the message is not read back as it was written, or the weight is not the expected one.

#include <google/protobuf/util/message_differencer.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "step.pb.h"

namespace {

using lockstep::sampler::DistributedSampler;

// Returns a copy that protobuf reads from the bytes that it has written.
absl::StatusOr<mixed_libraries::Step> Copied(const mixed_libraries::Step& step) {
  std::string bytes;
  mixed_libraries::Step copy;
  if (!step.SerializeToString(&bytes) || !copy.ParseFromString(bytes)) {
    return absl::InternalError("protobuf cannot read what it has written");
  }
  if (!google::protobuf::util::MessageDifferencer::Equals(step, copy)) {
    return absl::InternalError(absl::StrCat("protobuf has read ", copy.ShortDebugString()));
  }
  return copy;
}

// One step from the weight 0 on each rank's sample x, for the loss (weight * x - x)^2: its gradient is -2 * x * x.
absl::Status Train() {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, lockstep::comm::InitProcessGroup({}));
  mixed_libraries::Step written;
  written.set_name("step 1 of mixed_libraries");
  written.add_samples(1);
  written.add_samples(3);
  LOCKSTEP_ASSIGN_OR_RETURN(const mixed_libraries::Step step, Copied(written));

  LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                            DistributedSampler::Create(step.samples_size(), {group->size(), group->rank()}));
  torch::nn::Linear net(torch::nn::LinearOptions(1, 1).bias(false));
  torch::nn::init::zeros_(net->weight);
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, lockstep::ddp::Wrap(net, group.get()));
  torch::optim::SGD optimizer(ddp.parameters(), /*lr=*/0.05);
  LOCKSTEP_RETURN_IF_ERROR(lockstep::TorchStatus("training", [&] {
    const torch::Tensor x = torch::full({1, 1}, step.samples(static_cast<int>(sampler.Indices().at(0))));
    torch::mse_loss(ddp(x), x).backward();
    optimizer.step();
  }));

  const float weight = ddp.module()->weight.item<float>();
  if (std::abs(weight - 0.5f) > 1e-6f) return absl::InternalError(absl::StrCat("the weight is ", weight));
  if (group->rank() != 0) return absl::OkStatus();
  LOG(INFO) << "glog's own macro, beside LibTorch's: rank " << group->rank();
  const std::string path = "mixed_libraries.pt";
  LOCKSTEP_RETURN_IF_ERROR(lockstep::checkpoint::Save(path, lockstep::checkpoint::StateDict(*ddp.module())));
  LOCKSTEP_RETURN_IF_ERROR(lockstep::checkpoint::Load(path).status());
  std::remove(path.c_str());
  std::cout << group->size() << " ranks after \"" << step.name() << "\": weight " << weight << ", saved" << std::endl;
  return absl::OkStatus();
}

}  // namespace

int main(int, char** argv) {
  google::InitGoogleLogging(argv[0]);
  const absl::Status status = lockstep::launch::SpawnUnlessLaunched(/*ranks=*/2, [](int) { return Train(); });
  if (!status.ok()) std::cerr << "mixed_libraries: " << status.message() << std::endl;
  return lockstep::launch::ExitCode(status);
}
