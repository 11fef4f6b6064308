// Trains a small network with BatchNorm, dropout and Adam for $STEPS steps, whatever dies. For tests.
//
// For each generation, each rank appends "<number> <rank> of <world size>, pid <pid>, commits <n>" to $D/generations.
// Rank 0 of the last one writes the digest of parameters and buffers to $D/digest.

#include <ATen/ATen.h>
#include <fcntl.h>
#include <stdlib.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/dropout_net.h"
#include "lockstep/elastic/world.h"
#include "lockstep/tools/launch/report.h"

namespace lockstep::elastic::testing {
namespace {

constexpr int kVirtualRanks = 8;

int64_t Number(const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  const char* const text = getenv(name);
  return text && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

void Note(const World& world) {
  const auto& generation = world.generation();
  const std::string line = absl::StrCat(generation.number, " ", generation.rank, " of ", generation.world_size,
                                        ", pid ", getpid(), ", commits ", world.commits(), "\n");
  const int file = open(absl::StrCat(getenv("D"), "/generations").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (write(file, line.data(), line.size()) < 0) std::cerr << "cannot write to $D/generations\n";
  close(file);
}

absl::Status Train() {
  const int64_t steps = Number("STEPS", 200), pause_us = Number("PAUSE_US", 0);
  Options options;
  options.timeout = absl::Minutes(2);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(options));
  at::set_num_threads(1);
  at::manual_seed(3);
  ddp::testing::DropoutNet net(16, 64, 4);
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  int64_t step = 0;
  double losses = 0;
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("losses", &losses));
  return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
    Note(*world);
    ddp::Options ddp_options;
    ddp_options.virtual_ranks = kVirtualRanks;
    ddp_options.virtual_seed = 7;
    // Commit() gives all ranks rank 0's buffers, and the seed equal parameters.
    ddp_options.init_sync = ddp_options.broadcast_buffers = false;
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group, ddp_options));
    while (step < steps) {
      usleep(static_cast<useconds_t>(pause_us));
      optimizer.zero_grad();
      for (const int v : ddp.VirtualRanks(step)) {
        const at::Tensor x = at::arange(8 * 16).add(1.3 * step + 2.7 * v).mul(12.9898).sin().view({8, 16});
        ddp(x).pow(2).mean().backward();
      }
      losses += 1;  // the same on all ranks; taken back if the step is repeated
      LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
        optimizer.step();
        ++step;
      }));
    }
    if (losses != steps) return absl::InternalError(absl::StrCat(losses, " losses of ", steps, " steps"));
    if (group->rank() == 0) {
      std::ofstream(absl::StrCat(getenv("D"), "/digest")) << absl::StrCat(absl::Hex(ddp::testing::Digest(*net))) << "\n";
    }
    return absl::OkStatus();
  });
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
  return 1;
}
