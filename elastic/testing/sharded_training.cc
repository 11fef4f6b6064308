// Trains a small network with BatchNorm, dropout, a frozen layer and clipping for $STEPS steps with 8 virtual ranks. For
// tests. With $SHARDED=1 it is a ShardedModel, whatever dies. Otherwise it is replicated. With $MIXED=1 a ShardedModel
// is trained in bfloat16.
//
// For each generation, each rank appends a line to $D/generations, as small_training does. Rank 0 of the last one writes
// the digests of the network and of the optimizers' states to $D/digest: the same for both kinds of training. $FAULT
// names the place where rank $FAULT_RANK dies in step $FAULT_AT: see Faults.

#include <ATen/ATen.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/dropout_net.h"
#include "lockstep/elastic/sharded_model.h"
#include "lockstep/elastic/sharded_optimizer.h"
#include "lockstep/elastic/testing/training_files.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::elastic::testing {
namespace {

using Optimizer = ShardedOptimizer<optim::AdamW>;

constexpr double kMaxNorm = 0.02;  // less than the norms of the first steps

struct NetImpl : torch::nn::Module {
  NetImpl()
      : fixed(register_module("fixed", torch::nn::Linear(16, 16))),
        body(register_module("body", ddp::testing::DropoutNet(16, 1100, 16))),
        unused(register_parameter("unused", at::ones({100}))) {
    for (at::Tensor& parameter : fixed->parameters()) parameter.set_requires_grad(false);
  }
  // BatchNorm on a CPU refuses bfloat16.
  at::Tensor forward(const at::Tensor& x) {
    return is_mixed ? body->second(at::dropout(body->first(fixed(x)).relu(), 0.5, is_training())) : body(fixed(x));
  }

  torch::nn::Linear fixed;
  ddp::testing::DropoutNet body;
  at::Tensor unused;
  const bool is_mixed = Number("MIXED", 0) != 0;
};
TORCH_MODULE(Net);

// Where ranks die, by SIGKILL.
class Faults {
 public:
  explicit Faults(const World& world) : world_(world) {}

  // "backward": between two backward passes, or after the only one. "half": when the first of two optimizers has
  // stepped. "stepped": when both have. "publishes": $FAULT_US microseconds after that. "wraps": so long after the
  // second generation has begun to wrap the model. "others": all others die when they have stepped. "late": as
  // "backward", and the process that is started again does not come in time.
  void At(const std::string& place, int64_t step) {
    const launch::RankGeneration& generation = world_.generation();
    const std::string fault = Text("FAULT") == "late" ? "backward" : Text("FAULT");
    if (fault != place || generation.number != (place == "wraps" ? 2 : 1)) return;
    if (place != "wraps" && step != Number("FAULT_AT", -1)) return;
    const bool is_named = absl::StrContains(Text("FAULT_RANK"), absl::StrCat(generation.rank));
    if (is_named == (place == "others")) return;
    if (place == "others") usleep(300000);
    if (place != "publishes" && place != "wraps") raise(SIGKILL);
    std::thread([] {
      usleep(static_cast<useconds_t>(Number("FAULT_US", 0)));
      raise(SIGKILL);
    }).detach();
  }

  // "heals": a rank dies when it gives its state to others. Only once.
  void Save() const {
    if (Text("FAULT") != "heals" || world_.commits() == 0 || world_.generation().rank != Number("FAULT_RANK", 0))
      return;
    if (mkdir(InFolder("once").c_str(), 0700) == 0) raise(SIGKILL);
  }

 private:
  const World& world_;
};

// FNV-1a of the first averages and then of the second ones, in the order of the elements.
absl::StatusOr<uint64_t> DigestOf(const std::vector<const Optimizer*>& optimizers) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    for (const Optimizer* optimizer : optimizers) {
      LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value dict, checkpoint::OptimizerStateDict(*optimizer));
      for (const auto& [number, state] : dict.Find("state")->entries()) {
        const at::Tensor bytes = state.Find(key)->tensor().contiguous().flatten().view(at::kByte);
        for (int64_t i = 0; i < bytes.numel(); ++i)
          digest = (digest ^ static_cast<const uint8_t*>(bytes.const_data_ptr())[i]) * 0x100000001b3;
      }
    }
  }
  return digest;
}

class Training {
 public:
  explicit Training(std::unique_ptr<World> world) : world_(std::move(world)) {}

  absl::Status Run() {
    fsdp::Options options;
    options.units = {"body"};
    options.unit_bytes = 40000;
    options.virtual_ranks = kVirtualRanks;
    options.virtual_seed = kSeed;
    if (net_->is_mixed) options.mixed_precision.emplace();
    LOCKSTEP_ASSIGN_OR_RETURN(auto model, ShardModel(net_, options, /*piece_elements=*/4096));
    model_.emplace(std::move(model));
    MakeOptimizers();
    LOCKSTEP_RETURN_IF_ERROR(is_sharded_ ? world_->Keep("net", *model_) : world_->Keep("net", *net_));
    for (Optimizer* optimizer : {first_.get(), second_.get()}) {
      const std::string name = optimizer == first_.get() ? "first" : "second";
      torch::optim::Optimizer& plain = *optimizer;
      LOCKSTEP_RETURN_IF_ERROR(is_sharded_ ? world_->Keep(name, *optimizer) : world_->Keep(name, plain));
    }
    LOCKSTEP_RETURN_IF_ERROR(world_->Keep("step", &step_));
    LOCKSTEP_RETURN_IF_ERROR(world_->Keep(
        "faults",
        [this]() -> absl::StatusOr<checkpoint::Value> {
          faults_.Save();
          return checkpoint::Value(0);
        },
        [](const checkpoint::Value&) { return absl::OkStatus(); }));
    const absl::Status status = world_->Run([this](comm::ProcessGroup* group) { return Train(group); });
    if (World::IsResumable(status) && world_->generation().rank == 0) return WriteDigest("resumable");
    return status;
  }

 private:
  static constexpr int kVirtualRanks = 8, kSeed = 7;

  // Each of half of the parameters.
  void MakeOptimizers() {
    std::vector<at::Tensor> halves[2];
    const auto add = [&](const std::string& name, const at::Tensor& tensor) {
      halves[absl::StrContains(name, "second") ? 1 : 0].push_back(tensor);
    };
    if (is_sharded_) {
      for (size_t i = 0; i < model_->pieces().size(); ++i) add(model_->piece_names()[i], model_->pieces()[i]);
    } else {
      for (const auto& parameter : net_->named_parameters()) {
        if (parameter.value().requires_grad()) add(parameter.key(), parameter.value());
      }
    }
    const auto options = optim::AdamWOptions(0.01).fused(true);
    first_ = std::make_unique<Optimizer>(halves[0], options);
    second_ = std::make_unique<Optimizer>(halves[1], options);
  }

  absl::Status Train(comm::ProcessGroup* group) {
    Record(*world_);
    LOCKSTEP_RETURN_IF_ERROR(is_sharded_ ? TrainSharded(group) : TrainReplicated(group));
    LOCKSTEP_RETURN_IF_ERROR(world_->GatherShards());
    return group->rank() == 0 ? WriteDigest("digest") : absl::OkStatus();
  }

  absl::Status TrainSharded(comm::ProcessGroup* group) {
    faults_.At("wraps", 0);
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, model_->Wrap(group));
    while (step_ < Number("STEPS", 200)) {
      LOCKSTEP_RETURN_IF_ERROR(Step(&net, [&] { return net.ClipGradNorm(kMaxNorm); }));
    }
    return absl::OkStatus();
  }

  absl::Status TrainReplicated(comm::ProcessGroup* group) {
    ddp::Options options;
    options.virtual_ranks = kVirtualRanks;
    options.virtual_seed = kSeed;
    options.find_unused_parameters = true;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, elastic::Wrap(net_, group, options));
    while (step_ < Number("STEPS", 200)) {
      net_->zero_grad();
      LOCKSTEP_RETURN_IF_ERROR(Step(&net, [&] { return ddp::ClipGradNorm(*group, net.parameters(), kMaxNorm); }));
    }
    return absl::OkStatus();
  }

  template <typename Handle, typename Clip>
  absl::Status Step(Handle* net, const Clip& clip) {
    usleep(static_cast<useconds_t>(Number("PAUSE_US", 0)));
    for (const int v : net->VirtualRanks(step_)) {
      const at::Tensor x = at::arange(8 * 16).add(1.3 * step_ + 2.7 * v).mul(12.9898).sin().view({8, 16});
      (*net)(x).pow(2).mean().backward();
      faults_.At("backward", step_);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const double norm, clip());
    if (step_ == 0 && norm < kMaxNorm) return absl::InternalError(absl::StrCat("a norm of ", norm, " was not clipped"));
    return world_->Commit([&] {
      first_->step();
      faults_.At("half", step_);
      second_->step();
      faults_.At("stepped", step_);
      faults_.At("others", step_);
      faults_.At("publishes", step_);
      ++step_;
    });
  }

  absl::Status WriteDigest(const std::string& file) const {
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t states, DigestOf({first_.get(), second_.get()}));
    std::ofstream(InFolder(file)) << absl::StrCat(absl::Hex(ddp::testing::Digest(*net_)), " ", absl::Hex(states), "\n");
    return absl::OkStatus();
  }

  const bool is_sharded_ = Number("SHARDED", 0) != 0;
  Net net_;
  std::optional<ShardedModel<Net>> model_;
  std::unique_ptr<Optimizer> first_, second_;
  int64_t step_ = 0;
  const std::unique_ptr<World> world_;  // ends before the things that it keeps
  Faults faults_{*world_};
};

absl::Status Run() {
  Options options;
  options.timeout = absl::Milliseconds(Number("TIMEOUT_MS", 120000));
  options.leave_timeout = absl::Milliseconds(Number("LEAVE_MS", 10000));
  options.min_ranks = static_cast<int>(Number("MIN_RANKS", 1));
  options.wait_for_ranks = absl::Milliseconds(Number("WAIT_MS", 60000));
  options.failures_per_cause = 0;
  options.check_every = Number("CHECK_EVERY", 0);
  if (!Text("BACKEND").empty()) options.backend = Text("BACKEND");
  const bool is_new = access(InFolder("generations").c_str(), F_OK) == 0;
  if (is_new && Text("FAULT") == "late") sleep(30);
  LOCKSTEP_ASSIGN_OR_RETURN(auto world, World::Join(options));
  at::set_num_threads(1);
  // The first rank 0's values count, unless all processes start again.
  const bool counts = (!is_new && Text("RANK") == "0") || Text("FAULT") == "others";
  at::manual_seed(counts ? 3 : getpid());
  Training training(std::move(world));
  return training.Run();
}

}  // namespace
}  // namespace lockstep::elastic::testing

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  absl::Status status;
  const absl::Status thrown = lockstep::TorchStatus("", [&] { status = lockstep::elastic::testing::Run(); });
  status.Update(thrown);
  if (status.ok()) return 0;
  lockstep::launch::ReportError(status);
  std::cerr << status.message() << "\n";
  return lockstep::elastic::World::IsResumable(status) ? lockstep::elastic::kResumableExitCode : 1;
}
