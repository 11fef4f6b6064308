// Trains a small network with BatchNorm, dropout and Adam for $STEPS steps with $VIRTUAL_RANKS (8) virtual ranks,
// whatever dies. For tests. With $SHARDED=1 Adam is a ShardedOptimizer.
//
// For each generation, each rank appends "<number> <rank> of <world size>, pid <pid>, commits <n>" to $D/generations,
// and after its first step "<number>" to $D/first_steps. Rank 0 of the last one writes the digests of the network and
// of the optimizer to $D/digest.
//
// $BEGIN_AT is given to World::BeginAt(). $FAULT names something that goes wrong: see Faults. With $DEVICE=cuda all
// ranks use the first GPU.

#include <ATen/ATen.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/lr_scheduler.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/testing/shared_gpu.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/dropout_net.h"
#include "lockstep/elastic/internal/fast_hash.h"
#include "lockstep/elastic/sharded_optimizer.h"
#include "lockstep/elastic/testing/training_files.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::elastic::testing {
namespace {

absl::StatusOr<uint64_t> Digest(const torch::optim::Optimizer& optimizer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::Value state, checkpoint::OptimizerStateDict(optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, checkpoint::Serialize(state));
  return internal::FastHash(bytes.data(), bytes.size());
}

// Raises the faults of the training.
class Faults {
 public:
  Faults(const World& world, const ddp::testing::DropoutNet& net) : world_(world), net_(net) {}

  // "stuck": in step $FAULT_AT the last rank of several waits for ever. Otherwise, in step $FAULT_AT, rank 0 returns an
  // error ("error"), exits ("exit"), or has a gradient that is not finite ("nan"); with "_once" only the first time.
  absl::Status AfterBackward(int64_t step) {
    if (step != Number("FAULT_AT", -1)) return absl::OkStatus();
    const launch::RankGeneration& generation = world_.generation();
    while (fault_ == "stuck" && generation.rank > 0 && generation.rank == generation.world_size - 1) pause();
    if (generation.rank != 0) return absl::OkStatus();
    const bool once = absl::EndsWith(fault_, "_once");
    if (once && mkdir(InFolder("once").c_str(), 0700) != 0) return absl::OkStatus();
    const absl::string_view fault = absl::StripSuffix(fault_, "_once");
    if (fault == "error") return absl::DataLossError(absl::StrCat("sample ", step * 8, " is broken"));
    if (fault == "exit") _exit(3);
    if (fault == "nan") net_->first->weight.mutable_grad().view(-1)[3] = NAN;
    return absl::OkStatus();
  }

  // "save": before step $FAULT_AT all ranks agree that rank 0 has failed to write a file.
  absl::Status BeforeStep(int64_t step, comm::ProcessGroup* group) const {
    if (fault_ != "save" || step != Number("FAULT_AT", -1)) return absl::OkStatus();
    const absl::Status own = absl::ResourceExhaustedError("no space left for the file of step 30");
    return comm::Agree(group, "Save", group->rank() == 0 ? own : absl::OkStatus());
  }

  // "nan_loss": in step $FAULT_AT, rank 1's inputs and with them its gradients are not finite.
  float InputFactor(int64_t step) const {
    const bool spoils = fault_ == "nan_loss" && world_.generation().rank == 1 && step == Number("FAULT_AT", -1);
    return spoils ? NAN : 1;
  }

  // "stops": in step $FAULT_AT of the first generation, rank 2 stops (SIGSTOP) in Commit() while it waits for the
  // others.
  void BeforeCommit(int64_t step) const {
    if (fault_ != "stops" || step != Number("FAULT_AT", -1) || world_.generation().number != 1) return;
    if (world_.generation().rank != 2) {
      usleep(300000);
      return;
    }
    std::thread([] {
      usleep(150000);
      kill(getpid(), SIGSTOP);
    }).detach();
  }

  // 0.1 s after Run(), rank $FAULT_RANK is killed ("killed_after_run"), crashes ("crashes_after_run"), or exits with
  // code 7 ("exits_after_run"). "slow_exit": it takes two seconds to exit.
  void AfterRun() const {
    if (world_.generation().rank != Number("FAULT_RANK", 0)) return;
    usleep(100000);
    if (fault_ == "killed_after_run") raise(SIGKILL);
    if (fault_ == "crashes_after_run") raise(SIGSEGV);
    if (fault_ == "exits_after_run") _exit(7);
    if (fault_ == "slow_exit") sleep(2);
  }

  // "flips": between two checks, one rank flips one bit of one parameter. Rank 0 notes which in $D/flips.
  // "dies": in step $FAULT_AT of the first generation, SIGKILL of rank $FAULT_RANK inside of Commit().
  // "others_die": SIGKILL of all other ranks there, once it has stepped.
  void AfterCommit(int64_t step) {
    const launch::RankGeneration& generation = world_.generation();
    if (step == Number("FAULT_AT", -1) && generation.number == 1) {
      const bool is_named = generation.rank == Number("FAULT_RANK", 0);
      if (fault_ == "dies" && is_named) raise(SIGKILL);
      if (fault_ == "others_die" && !is_named) {
        usleep(300000);
        raise(SIGKILL);
      }
    }
    const int64_t every = Number("CHECK_EVERY", 1);
    if (fault_ != "flips") return;
    std::mt19937 random(static_cast<uint32_t>(step / every));
    const auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % n); };
    const int64_t when = below(every), rank = below(world_.generation().world_size);
    const auto parameters = net_->named_parameters();
    const auto& parameter = parameters[below(static_cast<int64_t>(parameters.size()))];
    const int64_t element = below(parameter.value().numel()), bit = 10 + below(13);
    if (step % every != when) return;
    if (world_.generation().rank == 0) Append("flips", absl::StrCat("rank ", rank, " net: ", parameter.key(), "\n"));
    if (world_.generation().rank != rank) return;
    static_cast<uint32_t*>(parameter.value().mutable_data_ptr())[element] ^= 1u << bit;
  }

 private:
  const World& world_;
  const ddp::testing::DropoutNet& net_;
  const std::string fault_ = Text("FAULT");
};

Options OptionsFromEnvironment() {
  Options options;
  options.timeout = absl::Milliseconds(Number("TIMEOUT_MS", 120000));
  options.leave_timeout = absl::Milliseconds(Number("LEAVE_MS", 10000));
  options.min_ranks = static_cast<int>(Number("MIN_RANKS", 1));
  options.max_ranks = static_cast<int>(Number("MAX_RANKS", 0));
  options.wait_for_ranks = absl::Milliseconds(Number("WAIT_MS", 60000));
  options.check_every = Number("CHECK_EVERY", 0);
  options.refuse_non_finite = Number("REFUSE_NON_FINITE", 0) != 0;
  options.regroups = Number("REGROUPS", 1) != 0;
  options.backend = Text("BACKEND").empty() ? "auto" : Text("BACKEND");
  return options;
}

absl::Status Train() {
  int64_t steps = Number("STEPS", 200);
  const int64_t pause_us = Number("PAUSE_US", 0);
  if (Text("FAULT") == "late" && access(InFolder("generations").c_str(), F_OK) == 0) sleep(30);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(OptionsFromEnvironment()));
  // "dies_early": the first process of local rank $FAULT_RANK, before it waits for the others.
  const bool dies_early = Text("FAULT") == "dies_early" && Text("LOCAL_RANK") == Text("FAULT_RANK");
  if (dies_early && mkdir(InFolder("died").c_str(), 0700) == 0) raise(SIGKILL);
  const c10::Device device(Text("DEVICE").empty() ? "cpu" : Text("DEVICE"));
  if (device.is_cuda()) comm::testing::ShareTheGpu(getpid());
  at::set_num_threads(1);
  at::manual_seed(Text("FAULT") == "seeds" ? getpid() : 3);
  // "new_name", "new_shape": so a process that comes after the first generation keeps other things.
  const bool is_new = access(InFolder("generations").c_str(), F_OK) == 0;
  const std::string fault = Text("FAULT");
  // With tensors of more than 64 KiB, and smaller ones.
  ddp::testing::DropoutNet net(16, fault == "new_shape" && is_new ? 1101 : 1100, 16);
  net->to(device);
  optim::AdamW plain(net->parameters(), 0.01);
  ShardedOptimizer<optim::AdamW> sharded(net->parameters(), 0.01);
  const bool shards = Number("SHARDED", 0) != 0;
  torch::optim::Optimizer& optimizer = shards ? static_cast<torch::optim::Optimizer&>(sharded) : plain;
  LOCKSTEP_ASSIGN_OR_RETURN(auto scheduler, checkpoint::LRScheduler::Create(&optimizer, checkpoint::StepLR{50, 0.9}));
  LOCKSTEP_ASSIGN_OR_RETURN(auto scaler, ddp::GradScaler::Create());
  int64_t step = 0;
  double losses = 0;
  if (fault != "nothing_kept") LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  const bool has_other_name = fault == "other_name" && Text("RANK") == "1";
  if (has_other_name || (fault == "new_name" && is_new)) LOCKSTEP_RETURN_IF_ERROR(world->Keep("other", &losses));
  if (fault != "nothing_kept") {
    LOCKSTEP_RETURN_IF_ERROR(shards ? world->Keep("optimizer", sharded) : world->Keep("optimizer", plain));
    LOCKSTEP_RETURN_IF_ERROR(world->Keep("scheduler", scheduler));
    LOCKSTEP_RETURN_IF_ERROR(world->Keep("scaler", scaler));
    LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));
    LOCKSTEP_RETURN_IF_ERROR(world->Keep("losses", &losses));
  }
  Faults faults(*world, net);
  const auto train = [&](comm::ProcessGroup* group) -> absl::Status {
    Record(*world);
    ddp::Options ddp_options;
    ddp_options.virtual_ranks = static_cast<int>(Number("VIRTUAL_RANKS", 8));
    ddp_options.virtual_seed = 7;
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(net, group, ddp_options));
    const int64_t first = step;
    // As if a checkpoint had been loaded.
    if (world->commits() == 0) LOCKSTEP_RETURN_IF_ERROR(world->BeginAt(Number("BEGIN_AT", 0)));
    while (step < steps) {
      usleep(static_cast<useconds_t>(pause_us));
      LOCKSTEP_RETURN_IF_ERROR(faults.BeforeStep(step, group));
      optimizer.zero_grad();
      for (const int v : ddp.VirtualRanks(step)) {
        const at::Tensor x = at::arange(8 * 16)
                                 .add(1.3 * step + 2.7 * v)
                                 .mul(12.9898)
                                 .sin()
                                 .view({8, 16})
                                 .mul(faults.InputFactor(step))
                                 .to(device);
        scaler.Scale(ddp(x).pow(2).mean()).backward();
      }
      LOCKSTEP_RETURN_IF_ERROR(faults.AfterBackward(step));
      faults.BeforeCommit(step);
      losses += 1;  // the same on all ranks; taken back if the step is repeated
      absl::Status applied;
      LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
        applied = scaler.Step(optimizer).status();
        applied.Update(scaler.Update());
        scheduler.Step();
        faults.AfterCommit(step);
        ++step;
      }));
      LOCKSTEP_RETURN_IF_ERROR(applied);
      if (step == first + 1) Append("first_steps", absl::StrCat(world->generation().number, "\n"));
    }
    if (losses != steps) return absl::InternalError(absl::StrCat(losses, " losses of ", steps, " steps"));
    if (shards && group->size() > 2 && optimizer.state().size() == net->parameters().size()) {
      return absl::InternalError("this rank has the state of all parameters");
    }
    LOCKSTEP_RETURN_IF_ERROR(world->GatherShards());
    if (group->rank() != 0) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t digest, Digest(optimizer));
    std::ofstream(InFolder("digest")) << absl::StrCat(absl::Hex(ddp::testing::Digest(*net)), " ", absl::Hex(digest),
                                                      "\n");
    return absl::OkStatus();
  };
  absl::Status status = world->Run(train);
  if (status.ok() && fault == "runs_twice") {  // ten steps more; rank $FAULT_RANK does something else before
    if (world->generation().rank == Number("FAULT_RANK", 0)) sleep(3);
    steps += 10;
    status = world->Run(train);
  }
  if (status.ok()) faults.AfterRun();
  if (World::IsResumable(status)) {
    Append("resumable", absl::StrCat(step, " steps, states of ", optimizer.state().size(), " parameters\n"));
  }
  return status;
}

}  // namespace
}  // namespace lockstep::elastic::testing

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  absl::Status status;
  const absl::Status thrown = lockstep::TorchStatus("", [&] { status = lockstep::elastic::testing::Train(); });
  status.Update(thrown);
  if (status.ok()) return 0;
  lockstep::launch::ReportError(status);
  std::cerr << status.message() << "\n";
  return lockstep::elastic::World::IsResumable(status) ? lockstep::elastic::kResumableExitCode : 1;
}
