#include "lockstep/examples/fashion_mnist/snapshot.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;

constexpr char kArch[] = "mlp_784_512_512_10";

absl::StatusOr<Position> Apply(const Value& file, int64_t batch_size, Net& net, torch::optim::SGD& optimizer,
                               sampler::DistributedSampler& sampler) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string arch, checkpoint::GetString(file, "arch"));
  if (arch != kArch) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of another model: expected arch \"", kArch, "\", found \"", arch, "\""));
  }
  Position position;
  LOCKSTEP_ASSIGN_OR_RETURN(position.epoch, checkpoint::GetInt(file, "epoch"));
  LOCKSTEP_ASSIGN_OR_RETURN(position.step, checkpoint::GetInt(file, "step"));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::GetDict(file, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net, state_dict));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, checkpoint::GetDict(file, "optimizer"));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(optimizer, optimizer_state));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value sampler_value, checkpoint::GetDict(file, "sampler"));
  LOCKSTEP_ASSIGN_OR_RETURN(const sampler::SamplerState sampler_state, sampler::ToSamplerState(sampler_value));
  if (sampler_state.consumed != position.step * batch_size) {
    return absl::InvalidArgumentError(absl::StrCat("its ", position.step, " steps took ", sampler_state.consumed,
                                                   " images, but --batch_size is ", batch_size));
  }
  const auto ranks = static_cast<int>(sampler.State(0).num_replicas);
  LOCKSTEP_RETURN_IF_ERROR(sampler.Restore(sampler_state));
  if (const Value* const buckets = file.Find("bucket_layout"); buckets != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(position.buckets, ddp::ToBucketLayout(*buckets, ranks));
  }
  return position;
}

}  // namespace

std::string SnapshotPath(const std::string& directory) { return absl::StrCat(directory, "/checkpoint.pt"); }

absl::Status SaveSnapshot(const std::string& path, const Position& position, const Net& net,
                          const torch::optim::SGD& optimizer, const sampler::SamplerState& sampler) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer_state, checkpoint::OptimizerStateDict(optimizer));
  const auto ranks = static_cast<int>(sampler.num_replicas);
  return checkpoint::Save(path, Value::Dict({{"arch", kArch},
                                             {"epoch", position.epoch},
                                             {"step", position.step},
                                             {"state_dict", checkpoint::StateDict(*net)},
                                             {"optimizer", optimizer_state},
                                             {"sampler", sampler::ToValue(sampler)},
                                             {"bucket_layout", ddp::ToValue(position.buckets, ranks)}}));
}

absl::StatusOr<Position> LoadSnapshot(const std::string& path, int64_t batch_size, Net& net,
                                      torch::optim::SGD& optimizer, sampler::DistributedSampler& sampler) {
  checkpoint::LoadOptions options;
  options.map_location = "cpu";
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(path, options));
  absl::StatusOr<Position> position = Apply(file, batch_size, net, optimizer, sampler);
  if (!position.ok()) return Annotate(position.status(), path);
  return position;
}

}  // namespace lockstep::examples
