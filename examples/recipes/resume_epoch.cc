// Resuming in the middle of an epoch: the state of the sampler and of the random generators is part of the checkpoint.
//
//   bazel run //examples/recipes:resume_epoch
//
// Claim: a run that is interrupted after 3 of 8 steps, and resumed by new objects, ends with the bits of the
// uninterrupted run, although batches are shuffled and the model drops out activations. It prints
//
//   resume_epoch: 2 ranks resumed after step 3 of 8 and ended with the bits of the uninterrupted run

#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/rng_state.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/recipes/recipe.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/sampler_state_value.h"

namespace lockstep::examples {
namespace {

using checkpoint::Value;

constexpr int64_t kBatch = 16, kBatches = 8;  // of each rank

// All objects of a training.
struct Training {
  ddp::DistributedDataParallel<torch::nn::Linear> net;
  torch::optim::SGD optimizer;
  sampler::DistributedSampler sampler;
};

absl::StatusOr<Training> Create(comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(kBatch * kBatches * group.size(),
                                                                              {group.size(), group.rank()}));
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(torch::nn::Linear(10, 1), &group));
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(/*lr=*/0.1).momentum(0.9));
  return Training{std::move(net), std::move(optimizer), std::move(sampler)};
}

// Trains at most `steps` steps, or to the end of the epoch. Returns the number of examples of this rank.
int64_t Train(Training& training, int64_t steps) {
  int64_t consumed = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const auto indices = training.sampler.next(kBatch);
    if (!indices) break;
    const at::Tensor numbers = torch::tensor(std::vector<float>(indices->begin(), indices->end())).unsqueeze(1);
    const at::Tensor inputs = numbers.mul(0.1).add(at::arange(10)).sin();
    training.optimizer.zero_grad();
    const at::Tensor outputs = training.net(at::dropout(inputs, 0.5, /*train=*/true));  // draws random numbers
    torch::nn::functional::mse_loss(outputs, inputs.sum(1, /*keepdim=*/true)).backward();
    training.optimizer.step();
    consumed += indices->size();
  }
  return consumed;
}

// A checkpoint of this rank. checkpoint::Save() would write the same value to a file.
absl::StatusOr<std::string> Save(const Training& training, int64_t consumed) {
  LOCKSTEP_ASSIGN_OR_RETURN(Value optimizer, checkpoint::OptimizerStateDict(training.optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(Value random, checkpoint::RngState());
  return checkpoint::Serialize(Value::Dict({{"model", checkpoint::StateDict(*training.net.module())},
                                            {"optimizer", std::move(optimizer)},
                                            {"sampler", sampler::ToValue(training.sampler.State(consumed))},
                                            {"random", std::move(random)}}));
}

absl::Status Restore(Training& training, const std::string& bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value value, checkpoint::Deserialize(bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(const sampler::SamplerState place, sampler::ToSamplerState(*value.Find("sampler")));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*training.net.module(), *value.Find("model")));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(training.optimizer, *value.Find("optimizer")));
  LOCKSTEP_RETURN_IF_ERROR(training.sampler.Restore(place));
  return checkpoint::SetRngState(*value.Find("random"));
}

absl::Status Compare(comm::ProcessGroup& group) {
  torch::manual_seed(group.rank());
  LOCKSTEP_ASSIGN_OR_RETURN(Training whole, Create(group));
  const int64_t consumed = Train(whole, /*steps=*/3);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, Save(whole, consumed));
  Train(whole, kBatches);  // to the end of the epoch: the uninterrupted run

  torch::manual_seed(99);  // as in a new process, other numbers than those of the first run
  LOCKSTEP_ASSIGN_OR_RETURN(Training resumed, Create(group));
  LOCKSTEP_RETURN_IF_ERROR(Restore(resumed, bytes));
  const int64_t rest = Train(resumed, kBatches);

  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(resumed.net.parameters(), group));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNumber("the number of examples", consumed + rest, kBatch * kBatches, kBatch * kBatches));
  const double difference = MaxDifference(resumed.net.parameters(), whole.net.parameters());
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference from the uninterrupted run", difference, 0, 0));
  Say(group, absl::StrCat("resume_epoch: ", group.size(), " ranks resumed after step 3 of ", kBatches,
                          " and ended with the bits of the uninterrupted run"));
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: a run that resumes in the middle of an epoch.", /*ranks=*/2, Compare);
}
