// Trains the program $PROGRAM under elastic::World with five virtual ranks, and saves it as $D/trained.pt2. For tests.
//
// $NAME chooses a program of the file. $SHAPE is the shape of a virtual rank's input, such as 4,2. $KILLS lists deaths,
// such as "1 of step 3": the process that trains virtual rank 1 in step 3 is killed before its backward. Each happens
// once, and makes the folder "$D/1 of step 3". With $SHARDED=1 AdamW is a ShardedOptimizer.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/elastic/sharded_optimizer.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/models/exported/exported_module.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::models::exported::testing {
namespace {

constexpr int64_t kSteps = 24;

std::string Text(const char* name) {
  const char* const text = getenv(name);
  return text ? text : "";
}

// Kills this process if $KILLS asks for it, and no process was killed in its place.
void MayDie(int64_t step, int virtual_rank) {
  const std::string death = absl::StrCat(virtual_rank, " of step ", step);
  for (const absl::string_view listed : absl::StrSplit(Text("KILLS"), ", ")) {
    if (listed == death && mkdir(absl::StrCat(Text("D"), "/", death).c_str(), 0700) == 0) raise(SIGKILL);
  }
}

// The input of a virtual rank in a step.
at::Tensor InputOf(int64_t step, int virtual_rank) {
  std::vector<int64_t> shape;
  for (const absl::string_view size : absl::StrSplit(Text("SHAPE"), ',')) {
    if (!absl::SimpleAtoi(size, &shape.emplace_back())) ThrowIfError(absl::InvalidArgumentError("$SHAPE"));
  }
  const int64_t numbers = c10::multiply_integers(shape);
  return at::arange(numbers).add(1.3 * step + 2.7 * virtual_rank).mul(12.9898).sin().view(shape);
}

absl::Status Train() {
  at::set_num_threads(1);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join());
  LoadOptions load;
  load.program = Text("NAME");
  LOCKSTEP_ASSIGN_OR_RETURN(ExportedModule net, Load(Text("PROGRAM"), load));
  elastic::ShardedOptimizer<optim::AdamW> sharded(net->parameters(), 0.01);
  optim::AdamW plain(net->parameters(), 0.01);
  const bool shards = Text("SHARDED") == "1";
  torch::optim::Optimizer& optimizer = shards ? static_cast<torch::optim::Optimizer&>(sharded) : plain;
  int64_t step = 0;
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
  LOCKSTEP_RETURN_IF_ERROR(shards ? world->Keep("optimizer", sharded) : world->Keep("optimizer", plain));
  LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));
  return world->Run([&](comm::ProcessGroup* group) -> absl::Status {
    ddp::Options options;
    options.virtual_ranks = 5;
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(net, group, options));
    while (step < kSteps) {
      optimizer.zero_grad();
      for (const int v : ddp.VirtualRanks(step)) {
        const at::Tensor loss = ddp(InputOf(step, v)).toTensor().square().mean();
        MayDie(step, v);
        loss.backward();
      }
      LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
        optimizer.step();
        ++step;
      }));
    }
    return group->rank() == 0 ? Save(absl::StrCat(Text("D"), "/trained.pt2"), net) : absl::OkStatus();
  });
}

}  // namespace
}  // namespace lockstep::models::exported::testing

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  absl::Status status;
  status.Update(lockstep::TorchStatus("", [&] { status = lockstep::models::exported::testing::Train(); }));
  if (status.ok()) return 0;
  lockstep::launch::ReportError(status);
  std::cerr << status.message() << "\n";
  return 1;
}
