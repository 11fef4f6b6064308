// A training whose ranks are killed: our side of suite recovery of tools/bench:compare. It runs under launch.
//
//   launch --standalone --nproc_per_node=4 recovery --fifo=FIFO --last_step=FILE --out=FILE
//
// When a rank has committed a step, it writes a line to the FIFO: "<process> <rank> <ranks> <generation> <step>
// <samples> <CLOCK_MONOTONIC in ns>". recovery_python.py writes the same lines.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gflags/gflags.h>
#include <stdlib.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/models/resnet.h"

DEFINE_string(network, "mlp", "mlp: 784 values, two hidden layers, 10 classes; resnet18: images of 64 by 64");
DEFINE_int64(hidden, 512, "mlp: the width of the hidden layers");
DEFINE_int64(batch, 64, "samples of a step, of all ranks together");
DEFINE_int32(virtual_ranks, 8, "which share the batch; as in ddp::Options");
DEFINE_string(fifo, "", "the FIFO that gets the lines");
DEFINE_string(last_step, "", "a file with the number of the last step; while there is none, the training goes on");
DEFINE_string(out, "", "the file that gets the parameters' bytes at the end");

namespace lockstep {
namespace {

constexpr int64_t kSamples = 1024;  // after which they come again

torch::nn::Sequential MakeNet() {
  if (FLAGS_network == "resnet18") return torch::nn::Sequential(models::ResNet18());
  return torch::nn::Sequential(torch::nn::Linear(784, FLAGS_hidden), torch::nn::ReLU(),
                               torch::nn::Linear(FLAGS_hidden, FLAGS_hidden), torch::nn::ReLU(),
                               torch::nn::Linear(FLAGS_hidden, 10));
}

class Data {
 public:
  Data() {
    const bool images = FLAGS_network == "resnet18";
    at::Generator generator = at::detail::createCPUGenerator(100);
    inputs_ = images ? at::randn({kSamples, 3, 64, 64}, generator) : at::randn({kSamples, 784}, generator);
    targets_ = at::randint(images ? 1000 : 10, {kSamples}, generator, at::kLong);
  }

  // Returns the loss of the samples of a virtual rank in a step.
  at::Tensor Loss(ddp::DistributedDataParallel<torch::nn::Sequential>& net, int64_t step, int virtual_rank) const {
    const int64_t size = FLAGS_batch / FLAGS_virtual_ranks;
    const int64_t first = (step * FLAGS_batch + virtual_rank * size) % kSamples;
    return at::cross_entropy_loss(net.forward(inputs_.narrow(0, first, size)), targets_.narrow(0, first, size));
  }

 private:
  at::Tensor inputs_, targets_;
};

class Fifo {
 public:
  static absl::StatusOr<Fifo> Open(const std::string& path) {
    UniqueFd fifo(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fifo.valid()) return absl::NotFoundError(absl::StrCat("--fifo=", path, ": cannot be opened"));
    return Fifo(std::move(fifo));
  }

  void RecordCommit(const elastic::World& world, int64_t step) const {
    const auto& generation = world.generation();
    const std::string line = absl::StrCat(getpid(), " ", generation.rank, " ", generation.world_size, " ",
                                          generation.number, " ", step, " ", FLAGS_batch, " ", MonotonicNanos(), "\n");
    // If the reader is gone, SIGPIPE ends the training.
    if (write(fifo_.get(), line.data(), line.size()) < 0) std::cerr << "recovery: cannot write to --fifo\n";
  }

 private:
  explicit Fifo(UniqueFd fifo) : fifo_(std::move(fifo)) {}

  UniqueFd fifo_;
};

int64_t LastStep() {
  int64_t step = 0;
  return std::ifstream(FLAGS_last_step) >> step ? step : std::numeric_limits<int64_t>::max();
}

absl::Status WriteParameters(const std::vector<at::Tensor>& parameters) {
  std::ofstream file(FLAGS_out, std::ios::binary);
  for (const at::Tensor& parameter : parameters) {
    file.write(static_cast<const char*>(parameter.const_data_ptr()), static_cast<std::streamsize>(parameter.nbytes()));
  }
  file.close();
  return file ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("--out=", FLAGS_out, ": cannot be written"));
}

absl::Status Train() {
  at::set_num_threads(1);
  torch::manual_seed(7);
  LOCKSTEP_ASSIGN_OR_RETURN(const Fifo fifo, Fifo::Open(FLAGS_fifo));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join());
  torch::nn::Sequential net = MakeNet();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const Data data;
  int64_t step = 0;
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));
  return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
    ddp::Options options;
    options.virtual_ranks = FLAGS_virtual_ranks;
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(net, group, options));
    while (step < LastStep()) {
      optimizer.zero_grad();
      for (const int virtual_rank : ddp.VirtualRanks(step)) data.Loss(ddp, step, virtual_rank).backward();
      LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
        optimizer.step();
        ++step;
        // Not after Commit(), which returns an error if the ranks regroup after the step.
        fifo.RecordCommit(*world, step);
      }));
    }
    return group->rank() == 0 ? WriteParameters(net->parameters()) : absl::OkStatus();
  });
}

absl::Status Run() {
  if (FLAGS_network != "mlp" && FLAGS_network != "resnet18") {
    return FlagError("network", FLAGS_network, "mlp or resnet18");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"hidden", FLAGS_hidden * 1.0, 1, 1 << 16},
                                        {"batch", FLAGS_batch * 1.0, 1, kSamples},
                                        {"virtual_ranks", FLAGS_virtual_ranks * 1.0, 1, 256}}));
  if (kSamples % FLAGS_batch != 0 || FLAGS_batch % FLAGS_virtual_ranks != 0) {
    return FlagError("batch", absl::StrCat(FLAGS_batch),
                     absl::StrCat("a divisor of ", kSamples, " and a multiple of --virtual_ranks"));
  }
  absl::Status status;
  status.Update(TorchStatus("recovery", [&] { status = Train(); }));
  return status;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);  // or LibTorch would log our errors, too, with its stack
  lockstep::ParseCommandLine(argc, argv, {.source = __FILE__, .description = "Trains until a rank is killed, and on."});
  const absl::Status status = lockstep::Run();
  if (status.ok()) return 0;
  lockstep::launch::ReportError(status);
  std::cerr << absl::StrCat("recovery: ", status.message(), "\n");
  return 1;
}
