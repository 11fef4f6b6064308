// Times training steps of the ranks of a host, fully sharded or with DistributedDataParallel, and prints a JSON line. Part of
// tools/bench:compare; by itself:
//
//   ./bazelw run //tools/bench:fsdp -- --case=gpt_10m/512 --mode=fsdp [--steps=10]

#include <torch/torch.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gflags/gflags.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/memory_report.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/optim/adamw.h"
#include "median.h"
#include "nlohmann/json.hpp"
#include "peak_pss.h"

DEFINE_string(case, "gpt_10m/512",
              "mlp_784_2048_2048_10/b64, gpt_10m/512 or gpt_124m/128: samples or tokens of a rank");
DEFINE_string(mode, "fsdp",
              "fsdp, ddp, ddp_zero1, which shards the optimizer's state, or ddp_no_sync, whose ranks each train alone");
DEFINE_int32(nproc_per_node, 2, "ranks of a host");
DEFINE_string(backend, "auto", "of the ranks");
DEFINE_bool(prefetch, true, "with --mode=fsdp: fsdp::Options::prefetch");
DEFINE_int32(steps, 10,
             "steps after the three first, which are not timed; the figure is their median on the slowest rank");
DEFINE_bool(turns, false, "measure again, with more steps, for each line of standard input");
DEFINE_int32(nnodes, 1, "hosts; start this program on each");
DEFINE_int32(node_rank, 0, "which of the hosts this is");
DEFINE_string(master_addr, "", "with --nnodes: the address of the first host");
DEFINE_int32(master_port, 0, "with --nnodes: a free port there");

namespace lockstep {
namespace {

// A network, its units, and a batch.
struct Training {
  torch::nn::Sequential net;
  std::vector<std::string> units;
  at::Tensor inputs, classes;
};

// As in fsdp_python.py: ranks have the same batch, so that those which train alone have the same losses.
Training MakeTraining() {
  at::manual_seed(0);
  Training training;
  int64_t rows = 64, classes = 10;
  if (FLAGS_case == "mlp_784_2048_2048_10/b64") {
    training.net = torch::nn::Sequential(torch::nn::Linear(784, 2048), torch::nn::ReLU(), torch::nn::Linear(2048, 2048),
                                         torch::nn::ReLU(), torch::nn::Linear(2048, 10));
    training.units = {"0", "2", "4"};
    at::manual_seed(7);
    training.inputs = at::randn({64, 784});
  } else {
    models::CausalLMConfig config;  // GPT-2's smallest
    if (FLAGS_case == "gpt_10m/512") {
      config.vocab_size = 512;
      config.hidden_size = 256;
      config.num_attention_heads = 8;
      config.max_position_embeddings = 128;
    }
    training.net = torch::nn::Sequential(models::CausalLM(config));
    training.units = {"0.transformer.h.*"};
    rows = FLAGS_case == "gpt_124m/128" ? 128 : 512;
    classes = config.vocab_size;
    at::manual_seed(7);
    training.inputs = at::randint(classes, {rows / 128, 128}, at::kLong);
  }
  training.classes = at::randint(classes, {rows}, at::kLong);
  return training;
}

// One way to train: the parameters of the optimizer are its own.
struct Way {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::function<absl::Status()> step;
  int64_t estimated = 0;  // the bytes of this rank at peak, without activations; 0 if it is not fully sharded
};

optim::AdamWOptions Options() { return optim::AdamWOptions(1e-4).fused(true); }

absl::StatusOr<Way> MakeWay(const Training& training, comm::ProcessGroup* group) {
  if (FLAGS_mode == "fsdp") {
    fsdp::Options options;
    options.units = training.units;
    options.prefetch = FLAGS_prefetch;
    LOCKSTEP_ASSIGN_OR_RETURN(auto wrapped, fsdp::Wrap(training.net, group, options));
    auto net = std::make_shared<decltype(wrapped)>(std::move(wrapped));
    auto optimizer = std::make_shared<optim::AdamW>(net->shards(), Options());
    return Way{[net](const at::Tensor& x) { return (*net)(x); }, [net, optimizer] { return net->Step(*optimizer); },
               fsdp::EstimateMemory(*net, /*states=*/2).peak};
  }
  ddp::Options options;
  options.gradient_as_bucket_view = true;
  LOCKSTEP_ASSIGN_OR_RETURN(auto wrapped, ddp::Wrap(training.net, group, options));
  auto net = std::make_shared<decltype(wrapped)>(std::move(wrapped));
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (FLAGS_mode != "ddp_zero1") {
    optimizer = std::make_shared<optim::AdamW>(net->parameters(), Options());
  } else {
    using Zero = ddp::zero::ZeroRedundancyOptimizer<optim::AdamW>;
    LOCKSTEP_ASSIGN_OR_RETURN(optimizer, Zero::Create(net->parameters(), Options(), group));
  }
  auto alone = FLAGS_mode == "ddp_no_sync" ? std::make_shared<ddp::NoSync>(*net) : nullptr;
  return Way{[net](const at::Tensor& x) { return (*net)(x); },
             [net, optimizer, alone] {
               optimizer->step();
               optimizer->zero_grad();
               return absl::OkStatus();
             }};
}

absl::Status Measure(comm::ProcessGroup* group) {
  const Training training = MakeTraining();
  LOCKSTEP_ASSIGN_OR_RETURN(const Way way, MakeWay(training, group));
  PeakPss pss;
  double loss = 0;
  std::vector<double> seconds;
  const auto run = [&](int steps) -> absl::Status {
    seconds.clear();
    for (int i = 0; i < steps; ++i) {
      const absl::Time start = absl::Now();
      const at::Tensor mean = at::cross_entropy_loss(way.forward(training.inputs).flatten(0, -2), training.classes);
      mean.backward();
      LOCKSTEP_RETURN_IF_ERROR(way.step());
      seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
      loss = mean.item<double>();
    }
    return absl::OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(run(2));
  const at::Tensor bytes = at::tensor({pss.Bytes(), way.estimated});
  LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(bytes));
  LOCKSTEP_RETURN_IF_ERROR(run(1));
  const double early_loss = loss;
  const bool is_first = group->rank() == 0;
  if (is_first && FLAGS_nnodes > 1) std::cout << nlohmann::json({{"ready", true}}) << std::endl;
  std::ifstream lines(absl::StrCat("/proc/", getppid(), "/fd/0"));  // a rank has no standard input
  const at::Tensor more = at::zeros({1});
  do {
    LOCKSTEP_RETURN_IF_ERROR(run(FLAGS_steps));
    const at::Tensor slowest = at::full({1}, Median(seconds), at::kDouble);
    LOCKSTEP_RETURN_IF_ERROR(group->AllReduce(slowest, comm::ReduceOp::kMax));
    if (is_first) {
      std::cout << nlohmann::json({{"seconds", slowest.item<double>()},
                                   {"loss", early_loss},
                                   {"peak_pss_bytes", bytes[0].item<int64_t>()},
                                   {"estimated_bytes", bytes[1].item<int64_t>()}})
                << std::endl;
    }
    std::string line;
    more.fill_(is_first && FLAGS_turns && std::getline(lines, line) ? 1 : 0);
    LOCKSTEP_RETURN_IF_ERROR(group->Broadcast(more, 0));
  } while (more.item<float>() > 0);
  return absl::OkStatus();
}

absl::Status RunRank() {
  at::set_num_threads(1);
  comm::InitOptions init;
  init.backend = FLAGS_backend;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(init));
  absl::Status status;
  const absl::Status thrown = TorchStatus("fsdp", [&] { status = Measure(group.get()); });
  return thrown.ok() ? status : thrown;
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"steps", static_cast<double>(FLAGS_steps), 1, 1000000},
                                        {"nproc_per_node", static_cast<double>(FLAGS_nproc_per_node), 1, 64}}));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckChoice("case", FLAGS_case, {"mlp_784_2048_2048_10/b64", "gpt_10m/512", "gpt_124m/128"}));
  LOCKSTEP_RETURN_IF_ERROR(CheckChoice("mode", FLAGS_mode, {"fsdp", "ddp", "ddp_zero1", "ddp_no_sync"}));
  launch::SpawnOptions hosts;
  hosts.nnodes = FLAGS_nnodes;
  hosts.node_rank = FLAGS_node_rank;
  hosts.master_addr = FLAGS_master_addr;
  hosts.master_port = FLAGS_master_port;
  return launch::Spawn(
      FLAGS_nproc_per_node, [](int) { return RunRank(); }, hosts);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::ProgramUsage usage;
  usage.source = __FILE__;
  usage.description = R"(
Times training steps of the ranks of a host, fully sharded or with DistributedDataParallel, and prints a JSON line.

  fsdp --case=gpt_10m/512 --mode=fsdp
)";
  lockstep::ParseCommandLine(argc, argv, usage);
  const absl::Status status = lockstep::Run();
  if (!status.ok()) std::cerr << "fsdp: " << status.message() << std::endl;
  return lockstep::launch::ExitCode(status);
}
