// Trains a network that Python exported by torch.export, with DistributedDataParallel:
//   bazel run //examples/exported:train                             # a small ResNet on Fashion-MNIST, on one rank
//   bazel run //examples/exported:train -- --program=net.pt2 --data=data.pt --batch=8 --optimizer=adamw --lr=0.001
//       --out=trained.pt2 --nproc_per_node=2

#include <gflags/gflags.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/output_file.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/safetensors/model.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/exported/rows.h"
#include "lockstep/examples/ranks/alike.h"
#include "lockstep/examples/ranks/frame.h"
#include "lockstep/models/exported/exported_module.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

DEFINE_int32(nproc_per_node, 1, "Ranks to start. If a launcher has started this program, the launcher decides.");
DEFINE_string(backend, "gloo", "The ranks' backend. Sums of gloo have the bits of Python's; auto is faster.");
DEFINE_string(program, "", "The file of torch.export.save to train. Empty: a small ResNet for Fashion-MNIST.");
DEFINE_string(data, "",
              "A file of torch.save: {\"inputs\": [tensor, ...], \"targets\": tensor}. Empty: Fashion-MNIST.");
DEFINE_string(data_dir, lockstep::data::FashionMnist::kDebianDirectory, "The folder of Fashion-MNIST's files.");
DEFINE_int64(batch, 64, "Rows per step, over all ranks.");
DEFINE_int64(steps, 100, "The number of steps.");
DEFINE_string(optimizer, "sgd", "sgd, with momentum 0.9, or adamw, with Python's defaults.");
DEFINE_double(lr, 0.1, "The learning rate.");
DEFINE_string(loss, "cross_entropy", "cross_entropy, mse, or output: the program's first output is the loss.");
DEFINE_bool(find_unused_parameters, false, "As in DistributedDataParallel. On one rank, parameters may be unused.");
DEFINE_string(out, "", "Where to save the trained program, for torch.export.load. Empty: nowhere.");
DEFINE_string(weights, "", "Where to save its weights, as a safetensors file. Empty: nowhere.");
DEFINE_string(losses, "", "Where to save the losses, as a JSON array of the mean over the ranks. Empty: nowhere.");

namespace lockstep::examples {
namespace {
using models::exported::ExportedModule;

// Returns the first tensor of what the program returns.
at::Tensor First(c10::IValue output) {
  while (!output.isTensor()) {
    if (output.isGenericDict() && !output.toGenericDict().empty()) {
      output = output.toGenericDict().begin()->value();
    } else if (output.isTuple() && !output.toTupleRef().elements().empty()) {
      output = output.toTupleRef().elements()[0];
    } else if (output.isList() && !output.toListRef().empty()) {
      output = output.toListRef()[0];
    } else {
      TORCH_CHECK_VALUE(false, "the program's first output is no tensor, but ", output.tagKind());
    }
  }
  return output.toTensor();
}

// The program with its loss.
class LossModuleImpl : public torch::nn::Module {
 public:
  explicit LossModuleImpl(const ExportedModule& program) : program_(register_module("program", program)) {}

  at::Tensor forward(const std::vector<at::Tensor>& inputs, const at::Tensor& targets) {
    const at::Tensor output = First(program_->Call({inputs.begin(), inputs.end()}));
    if (FLAGS_loss == "cross_entropy") return at::cross_entropy_loss(output, targets);
    if (FLAGS_loss == "mse") return at::mse_loss(output, targets);
    TORCH_CHECK_VALUE(output.numel() == 1, "--loss=output: expected one number, found a tensor ", output.sizes());
    return output;
  }

 private:
  ExportedModule program_;
};
TORCH_MODULE(LossModule);

absl::StatusOr<Rows> ReadData() {
  if (!FLAGS_data.empty()) return ReadRows(FLAGS_data, /*with_targets=*/FLAGS_loss != "output");
  using data::FashionMnist;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto train, FashionMnist::Load(FLAGS_data_dir, FashionMnist::Split::kTrain));
  std::vector<int64_t> used(std::min(train.size(), FLAGS_batch * FLAGS_steps));
  std::iota(used.begin(), used.end(), 0);
  const data::Example examples = train.Batch(used);
  return Rows{{examples.data}, examples.target};
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const std::vector<at::Tensor>& parameters) {
  if (FLAGS_optimizer == "adamw") return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(FLAGS_lr));
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(FLAGS_lr).momentum(0.9));
}

// Saves what the flags ask for.
absl::Status SaveAll(const ExportedModule& net, const at::Tensor& losses) {
  if (!FLAGS_out.empty()) LOCKSTEP_RETURN_IF_ERROR(models::exported::Save(FLAGS_out, net));
  if (!FLAGS_weights.empty()) LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSafetensorsModel(FLAGS_weights, *net));
  if (FLAGS_losses.empty()) return absl::OkStatus();
  std::vector<std::string> numbers;
  for (int64_t step = 0; step < FLAGS_steps; ++step)
    numbers.push_back(absl::StrFormat("%.9g", losses[step].item<double>()));
  std::ofstream file(FLAGS_losses);
  file << "[" << absl::StrJoin(numbers, ", ") << "]\n" << std::flush;
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(FLAGS_losses, ": cannot be written"));
}

absl::Status Train(comm::ProcessGroup& group) {
  const int rank = group.rank(), ranks = group.size();
  LOCKSTEP_RETURN_IF_ERROR(CheckMultiple("batch", FLAGS_batch, ranks));
  LOCKSTEP_ASSIGN_OR_RETURN(const Rows data, ReadData());
  LOCKSTEP_ASSIGN_OR_RETURN(ExportedModule net, models::exported::Load(FLAGS_program));
  ddp::Options options;
  options.find_unused_parameters = FLAGS_find_unused_parameters || ranks == 1;
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(LossModule(net), &group, options));
  const auto optimizer = MakeOptimizer(ddp.parameters());
  torch::manual_seed(rank);  // for dropout
  Say(group, absl::StrFormat("%s: %d parameters", FLAGS_program, Flat(ddp.parameters()).numel()));

  const int64_t share = FLAGS_batch / ranks;
  const at::Tensor losses = torch::zeros({FLAGS_steps}, torch::kDouble);
  for (int64_t step = 0; step < FLAGS_steps; ++step) {
    const Rows rows = data.Part(step * FLAGS_batch + rank * share, share);
    optimizer->zero_grad();
    // Most likely a dtype of the data does not fit if this fails.
    LOCKSTEP_ASSIGN_OR_RETURN(
        const at::Tensor loss,
        TorchStatusOr(absl::StrCat(FLAGS_data, FLAGS_data.empty() ? "" : ": ", "step ", step, ", ", rows.ToString()),
                      [&] { return ddp(rows.inputs, rows.targets); }));
    loss.backward();  // averages the gradients over the ranks
    optimizer->step();
    losses[step] = loss.item<double>();
    if (!std::isfinite(loss.item<double>()))
      return absl::OutOfRangeError(absl::StrCat("step ", step, ": the loss is ", loss.item<double>()));
  }
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(losses));
  losses.div_(ranks);
  LOCKSTEP_RETURN_IF_ERROR(CheckAlike(ddp.parameters(), group));
  Say(group, absl::StrFormat("loss: %.4f in the first step, %.4f in step %d", losses[0].item<double>(),
                             losses[FLAGS_steps - 1].item<double>(), FLAGS_steps));
  return rank == 0 ? SaveAll(net, losses) : absl::OkStatus();
}

// `bazel run` starts the program in another folder than the user's.
void MakeAbsolute(std::string& path) {
  const char* folder = getenv("BUILD_WORKING_DIRECTORY");
  if (folder && !path.empty() && path[0] != '/') path = absl::StrCat(folder, "/", path);
}

absl::Status Run() {
  for (std::string* path : {&FLAGS_program, &FLAGS_data, &FLAGS_out, &FLAGS_weights, &FLAGS_losses})
    MakeAbsolute(*path);
  if (FLAGS_program.empty()) {
    FLAGS_program = "examples/exported/net.pt2";
  } else if (FLAGS_data.empty()) {
    return FlagError("data", "", "a file, since --program is given");
  }
  for (const auto& [flag, path] :
       {std::pair("--out", FLAGS_out), {"--weights", FLAGS_weights}, {"--losses", FLAGS_losses}}) {
    if (!path.empty()) LOCKSTEP_RETURN_IF_ERROR(CheckOutputFile(absl::StrCat(flag, "=", path), path));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"lr", FLAGS_lr, 0}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("optimizer", FLAGS_optimizer, {"sgd", "adamw"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("loss", FLAGS_loss, {"cross_entropy", "mse", "output"}));
  return OnRanks(FLAGS_nproc_per_node, {.backend = FLAGS_backend}, Train);
}

}  // namespace
}  // namespace lockstep::examples

int main(int argc, char** argv) {
  using namespace lockstep::examples;
  lockstep::ProgramUsage usage = {.source = __FILE__, .description = "Trains a network that Python exported."};
  return ExampleMain(argc, argv, usage, {"nproc_per_node", "batch", "steps"}, Run);
}
