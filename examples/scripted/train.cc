// Trains a network that Python exported as TorchScript, on Fashion-MNIST with DistributedDataParallel:
//   python examples/scripted/export_model.py net.ts        # examples/scripted has the result
//   bazel run //examples/scripted:train                    # two ranks on this machine
//   bazel run //examples/scripted:train -- --module=$PWD/net.ts --output=$PWD/trained.ts --state_dict=$PWD/trained.pt
// In Python: torch.jit.load("trained.ts"), or Net().load_state_dict(torch.load("trained.pt")).

#include <gflags/gflags.h>
#include <torch/torch.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/models/scripted/file.h"
#include "lockstep/models/scripted/script_module.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/torch_sampler.h"

DEFINE_int32(nproc_per_node, 2, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(module, "examples/scripted/net.ts", "The TorchScript file to train.");
DEFINE_int64(epochs, 3, "The number of passes over the training images.");
DEFINE_int64(batch_size, 512, "Images per step, over all ranks.");
DEFINE_double(lr, 0.1, "The learning rate of SGD.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of the four IDX files.");
DEFINE_string(output, "", "Where to save the trained module, for torch.jit.load. Empty: nowhere.");
DEFINE_string(state_dict, "", "Where to save its state dict, for load_state_dict. Empty: nowhere.");

namespace lockstep::examples {
namespace {
using data::FashionMnist;

// The share of the test images that the module's method "classify" gets right. Each image is on one rank.
absl::StatusOr<double> TestAccuracy(models::scripted::ScriptModule& net, const FashionMnist& test,
                                    comm::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  LOCKSTEP_ASSIGN_OR_RETURN(auto part, sampler::EvaluationSampler::Create(test.size(), {group.size(), group.rank()}));
  const auto loader =
      torch::data::make_data_loader(data::TorchBatchDataset(test), sampler::TorchSampler(part), /*batch_size=*/1000);
  at::Tensor correct = torch::zeros({1}, torch::kDouble);
  net->eval();
  for (const auto& batch : *loader) {
    const c10::IValue output = net->Call("classify", {batch.data});  // a tuple: classes and probabilities
    correct += output.toTupleRef().elements()[0].toTensor().eq(batch.target).sum();
  }
  net->train();
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(correct));
  return correct.item<double>() / part.total_size();
}

absl::Status Train(comm::ProcessGroup& group) {
  const int rank = group.rank(), ranks = group.size();
  LOCKSTEP_RETURN_IF_ERROR(CheckMultiple("batch_size", FLAGS_batch_size, ranks));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto test, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTest));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::DistributedSampler::Create(train.size(), {ranks, rank}));
  const auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train), sampler::TorchSampler(sampler),
                                                    FLAGS_batch_size / ranks);
  LOCKSTEP_ASSIGN_OR_RETURN(models::scripted::ScriptModule net, models::scripted::Load(FLAGS_module));
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, &group));
  torch::optim::SGD optimizer(ddp.parameters(), torch::optim::SGDOptions(FLAGS_lr).momentum(0.9));
  torch::manual_seed(rank);  // for dropout

  Say(group, absl::StrFormat("%s: a %s with %d parameters", FLAGS_module, net->name(), Flat(ddp.parameters()).numel()));
  double accuracy = 0;
  for (int64_t epoch = 0; epoch < FLAGS_epochs; ++epoch) {
    sampler.set_epoch(epoch);
    at::Tensor losses = torch::zeros({2}, torch::kDouble);  // their sum and number
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(ddp(batch.data).toTensor(), batch.target);
      loss.backward();  // averages the gradients over the ranks
      optimizer.step();
      losses += torch::tensor({loss.item<double>(), 1.0}, torch::kDouble);
    }
    LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(losses));
    // Batch normalisation has each rank's own statistics since the last forward.
    for (const at::Tensor& buffer : net->buffers()) LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(buffer, /*root=*/0));
    LOCKSTEP_ASSIGN_OR_RETURN(accuracy, TestAccuracy(net, test, group));
    Say(group, absl::StrFormat("epoch %d: train loss %.4f, test accuracy %.4f", epoch + 1,
                               (losses[0] / losses[1]).item<double>(), accuracy));
  }

  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp.parameters(), group));
  net->eval();
  if (rank == 0 && !FLAGS_state_dict.empty())
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::Save(FLAGS_state_dict, checkpoint::StateDict(*net)));
  if (FLAGS_output.empty()) return absl::OkStatus();
  if (rank == 0) LOCKSTEP_RETURN_IF_ERROR(models::scripted::Save(FLAGS_output, net));
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // the file is there
  LOCKSTEP_ASSIGN_OR_RETURN(models::scripted::ScriptModule saved, models::scripted::Load(FLAGS_output));
  LOCKSTEP_ASSIGN_OR_RETURN(const double again, TestAccuracy(saved, test, group));
  if (again != accuracy)
    return absl::InternalError(absl::StrCat(FLAGS_output, ": its test accuracy is ", again, ", expected ", accuracy));
  Say(group, absl::StrCat(FLAGS_output, ": loaded again, its test accuracy is the same"));
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"lr", FLAGS_lr, 0}}));
  return OnRanks(FLAGS_nproc_per_node, {}, Train);
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  return ExampleMain(argc, argv, {.source = __FILE__, .description = "Trains a module that Python exported."},
                     {"nproc_per_node", "epochs", "batch_size"}, Run);
}
