// The C++ side of the peer test: peer_program COMMAND ARGUMENT...
//
//   save DIRECTORY DRAWN   two ranks save step 5 to DIRECTORY, with their random state; DRAWN: what is drawn after
//   draw STATE DRAWN       sets the random state that is the file STATE; DRAWN: what is drawn after
//   latest DIRECTORY       prints the latest step, its metrics and the mean of its weights

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/rng_state.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

Value Draw() { return Value::List({at::randn({3}), at::rand({5})}); }

absl::Status SaveRank(const std::string& directory, comm::ProcessGroup& group, const Value& rng) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto manager, Manager::Create(directory, &group, {.best_metric = "accuracy"}));
  const Value value = Value::Dict({{"state_dict", Value::OrderedDict({{"w", at::full({4}, 2.5)}})}, {"epoch", 2}});
  const Value state = Value::Dict({{"rng", rng}, {"rank", group.rank()}});
  return manager->Save(5, value, {.metrics = {{"accuracy", 0.5}}, .rank_state = state});
}

absl::Status SaveTwo(const std::string& directory, const std::string& drawn) {
  torch::manual_seed(7);
  at::randn({1});
  // The ranks are threads, so that they have one generator.
  LOCKSTEP_ASSIGN_OR_RETURN(const Value rng, RngState());
  const auto results =
      comm::testing::RunRanks(2, [&](comm::ProcessGroup& group) { return SaveRank(directory, group, rng); });
  for (const absl::Status& result : results) LOCKSTEP_RETURN_IF_ERROR(result);
  return Save(drawn, Draw());
}

absl::Status DrawFrom(const std::string& state, const std::string& drawn) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value rng, Load(state));
  LOCKSTEP_RETURN_IF_ERROR(SetRngState(rng));
  return Save(drawn, Draw());
}

absl::Status Latest(const std::string& directory) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto manager, Manager::Create(directory, nullptr));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto latest, manager->LoadLatest());
  if (!latest) return absl::NotFoundError("no checkpoint");
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor weights, GetTensor(latest->value, {"state_dict", "w"}));
  std::printf("%d %g %g\n", static_cast<int>(latest->info.step), latest->info.metrics.at("accuracy"),
              weights.mean().item<double>());
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  const auto is = [&](const char* command, size_t count) {
    return arguments.size() == count + 1 && arguments[0] == command;
  };
  if (is("save", 2)) return SaveTwo(arguments[1], arguments[2]);
  if (is("draw", 2)) return DrawFrom(arguments[1], arguments[2]);
  if (is("latest", 1)) return Latest(arguments[1]);
  return absl::InvalidArgumentError("usage: peer_program save|draw|latest ARGUMENT...");
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  const absl::Status status = lockstep::checkpoint::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
