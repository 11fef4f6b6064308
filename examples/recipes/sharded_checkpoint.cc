// A sharded checkpoint: 4 ranks save it, each its part, and 3 ranks resume from it.
//
//   bazel run //examples/recipes:sharded_checkpoint
//
// Claim: each of the 3 ranks gets exactly its rows of a table that no rank has whole, and the model has the same loss
// as when it was saved. It prints
//
//   sharded_checkpoint: 4 ranks saved 250 of 1000 rows each, and a model with loss 3.21
//   sharded_checkpoint: 3 ranks loaded 333 of 1000 rows or one more, and the model with loss 3.21; trained on to 0.4

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/checkpoint/sharded/state_dict.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/temporary_path.h"
#include "lockstep/examples/recipes/recipe.h"

namespace lockstep::examples {
namespace {

using checkpoint::ShardedStateDict;
using checkpoint::Value;

constexpr int64_t kRows = 1000, kColumns = 8;

// The first of the rows that `rank` has.
int64_t FirstRow(int rank, int ranks) { return kRows * rank / ranks; }

// This rank's rows of the table. Row i is filled with the number i.
at::Tensor Rows(const comm::ProcessGroup& group) {
  const int64_t first = FirstRow(group.rank(), group.size()), end = FirstRow(group.rank() + 1, group.size());
  return at::arange(first, end, at::kFloat).unsqueeze(1).expand({end - first, kColumns}).contiguous();
}

// The contents of the checkpoint: the model, which every rank has whole, the loss, and this rank's rows.
absl::StatusOr<ShardedStateDict> State(const torch::nn::Linear& model, double loss, const at::Tensor& rows,
                                       const comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      ShardedStateDict state,
      checkpoint::FlattenStateDict(Value::Dict({{"model", checkpoint::StateDict(*model)}, {"loss", loss}})));
  const int64_t first = FirstRow(group.rank(), group.size());
  state.push_back({{"table"}, checkpoint::ShardedTensor{{kRows, kColumns}, {{{first, 0}, rows}}}});
  return state;
}

// The loss of this rank's samples of step `step`.
template <typename Model>
at::Tensor Loss(Model& model, int rank, int step) {
  const at::Tensor inputs = at::randn({32, 10}, at::detail::createCPUGenerator(1000 * rank + step));
  return torch::nn::functional::mse_loss(model.forward(inputs), inputs.sum(1, /*keepdim=*/true));
}

// Trains a few steps. Returns the loss on samples that no rank trains on.
absl::StatusOr<double> Train(torch::nn::Linear model, comm::ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(model, &group));
  torch::optim::SGD optimizer(net.parameters(), /*lr=*/0.1);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    Loss(net, group.rank(), step).backward();
    optimizer.step();
  }
  return Loss(*model, /*rank=*/-1, /*step=*/0).item<double>();
}

absl::Status Save(comm::ProcessGroup& group, const std::string& directory) {
  torch::nn::Linear model(10, 1);
  LOCKSTEP_ASSIGN_OR_RETURN(const double loss, Train(model, group));
  LOCKSTEP_ASSIGN_OR_RETURN(const ShardedStateDict state, State(model, loss, Rows(group), group));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(directory, state, &group));  // every rank writes its part
  Say(group, absl::StrCat("sharded_checkpoint: ", group.size(), " ranks saved ", kRows / group.size(), " of ", kRows,
                          " rows each, and a model with loss ", loss));
  return absl::OkStatus();
}

absl::Status Resume(comm::ProcessGroup& group, const std::string& directory) {
  torch::nn::Linear model(10, 1);
  const at::Tensor expected = Rows(group), rows = at::zeros_like(expected);
  LOCKSTEP_ASSIGN_OR_RETURN(ShardedStateDict state, State(model, /*loss=*/0, rows, group));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadSharded(directory, state, &group));  // fills the tensors in place

  const double saved = checkpoint::FindValue(state, "loss")->double_value();
  const double loaded = Loss(*model, /*rank=*/-1, /*step=*/0).item<double>();
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the difference of the rows", MaxDifference({rows}, {expected}), 0, 0));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the loss after loading", loaded, saved, saved));
  LOCKSTEP_ASSIGN_OR_RETURN(const double trained, Train(model, group));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumber("the loss after training on", trained, 0, saved));
  Say(group, absl::StrCat("sharded_checkpoint: ", group.size(), " ranks loaded ", rows.size(0), " of ", kRows,
                          " rows or one more, and the model with loss ", loaded, "; trained on to ", trained));
  return absl::OkStatus();
}

absl::Status Run() {
  const TemporaryPath directory("lockstep_sharded_checkpoint");
  LOCKSTEP_RETURN_IF_ERROR(OnRanks(4, [&](comm::ProcessGroup& group) { return Save(group, directory.path()); }));
  return OnRanks(3, [&](comm::ProcessGroup& group) { return Resume(group, directory.path()); });
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return RecipeMain(argc, argv, "A recipe: a sharded checkpoint, saved by 4 ranks and resumed by 3.", &Run);
}
