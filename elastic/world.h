// Training that goes on when a rank dies. The ranks that are left form a new group, repeat the step that was under way,
// and give the rank that comes in its place the state of the training from their memory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto world, elastic::World::Join());
//   Net net;
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   int64_t step = 0;
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("net", *net));
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("step", &step));
//   ddp::Options options;
//   options.virtual_ranks = 8;
//   options.init_sync = options.broadcast_buffers = false;   // Commit() gives all ranks rank 0's
//   return world->Run([&](comm::ProcessGroup* group) -> absl::Status {   // once for each generation
//     LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group, options));
//     while (step < kSteps) {
//       optimizer.zero_grad();
//       for (const int v : ddp.VirtualRanks(step)) Loss(ddp, step, v).backward();   // throws when a rank has died
//       LOCKSTEP_RETURN_IF_ERROR(world->Commit([&] {
//         optimizer.step();
//         ++step;
//       }));
//     }
//     return absl::OkStatus();
//   });
//
// The program runs under //tools/launch or launch::Spawn. With ddp::Options::virtual_ranks the result has the same bits
// whatever dies, since it does not depend on the number of ranks.
//
// A step is a transaction without a vote. Commit() applies and counts it, when nothing can fail any more. If a rank dies, the counts of the ranks that are left
// differ by one at most, because every step has a collective. A rank that is behind gets the state of one that is ahead.
// If all counts are equal, nobody has applied the step that was under way, and it is repeated.

#ifndef LOCKSTEP_ELASTIC_WORLD_H_
#define LOCKSTEP_ELASTIC_WORLD_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/tools/launch/agent_link/agent_link.h"

namespace lockstep::elastic {

namespace internal {
class KeptState;
class LinkWatcher;
}  // namespace internal

struct Options {
  int min_ranks = 1;                                       // fewer ranks wait for others
  std::string backend = "auto";                            // of the groups; see comm::InitOptions
  absl::Duration timeout = absl::Minutes(30);              // for meeting, and for each collective
  // For the step under way when a rank dies; then SIGKILL. At least 3 s: if rank 0 is stopped, the others need 1.3 s.
  absl::Duration leave_timeout = absl::Seconds(10);
  absl::Duration check_interval = absl::Milliseconds(50);  // about how often Commit() asks whether a rank has come
};

// Not thread-safe.
class World {
 public:
  // Each rank calls it once. FailedPrecondition: the process was not started by Lockstep's launch. InvalidArgument: bad
  // options.
  static absl::StatusOr<std::unique_ptr<World>> Join(const Options& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Names a thing that is the same on all ranks after each step, and that outlives them. All ranks keep the same things
  // under the same names, before Run(). The things must outlive the World. InvalidArgument: the name is taken.
  //
  // A module's buffers, and variables, return to their values at the last Commit() before a step is repeated. Parameters
  // and optimizers must change in Commit() only.
  absl::Status Keep(const std::string& name, torch::nn::Module& module);
  absl::Status Keep(const std::string& name, torch::optim::Optimizer& optimizer);
  // A variable without pointers: a number, or a struct such as sampler::SamplerState.
  template <typename T>
  absl::Status Keep(const std::string& name, T* variable) {
    static_assert(std::is_trivially_copyable_v<T>, "keep what it points to, or give functions that save and load it");
    return KeepBytes(name, variable, sizeof(T));
  }
  // Anything else. It is not taken back when a step is repeated: change it in Commit() only.
  absl::Status Keep(const std::string& name, std::function<absl::StatusOr<checkpoint::Value>()> save,
                    std::function<absl::Status(const checkpoint::Value& value)> load);

  // Calls `train` with a group of all ranks, and again with a new group whenever a rank has died or come. Before, it
  // makes what was kept equal on all ranks. Objects that use the group, such as DDP's wrapper and the loader, are made in
  // `train`.
  //
  // Returns OK when `train` has returned OK on all ranks of a generation. An error of `train` that is not the group's,
  // and that another rank has not caused, is returned at once: the rank should end with it, and is started again. The
  // reason of each new generation is a line of the launcher. Errors besides: of AgentLink::Join(), and InvalidArgument if
  // the ranks keep different things.
  absl::Status Run(const std::function<absl::Status(comm::ProcessGroup* group)>& train);

  // Ends a step: calls `apply`, which steps the optimizer and must not use the group. Call it on every rank after the
  // backward, and return its error from `train`: the ranks must regroup. A collective: before `apply`, all ranks get rank
  // 0's buffers, as DDP gives them at the next forward; otherwise they would be lost with rank 0. Without buffers, most
  // calls exchange nothing.
  absl::Status Commit(const std::function<void()>& apply);

  // The steps that all ranks have completed, since the first start of the job or the checkpoint that was loaded.
  int64_t commits() const { return commits_; }

  // The ranks of the group that `train` has.
  const launch::RankGeneration& generation() const { return generation_; }

 private:
  World(const Options& options, std::unique_ptr<launch::AgentLink> link);
  absl::Status KeepBytes(const std::string& name, void* data, size_t size);
  // One generation: meets, heals, trains.
  absl::Status RunOnce(const std::function<absl::Status(comm::ProcessGroup* group)>& train);
  absl::Status Heal();
  absl::Status TakeState(int source, int64_t newest);
  absl::Status AgreeToGoOn();
  bool OthersCaused(const absl::Status& status) const;

  const Options options_;
  const std::unique_ptr<launch::AgentLink> link_;
  const std::unique_ptr<internal::KeptState> kept_;
  launch::RankGeneration generation_;
  std::unique_ptr<comm::ProcessGroup> group_;
  std::unique_ptr<internal::LinkWatcher> watcher_;
  int64_t commits_ = 0;
  int64_t next_check_ = 0;  // the value of commits_ at which Commit() asks whether to regroup
  int64_t last_check_ = 0;  // at which it asked last, at this time
  absl::Time last_check_time_;
  bool regroups_ = false;  // the ranks have agreed to regroup between two steps
};

}  // namespace lockstep::elastic

#endif  // LOCKSTEP_ELASTIC_WORLD_H_
