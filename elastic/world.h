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
//   return world->Run([&](comm::ProcessGroup* group) -> absl::Status {   // once for each generation
//     LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(net, group, options));   // wrap.h
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
// The program runs under //launch or launch::Spawn. With ddp::Options::virtual_ranks the result has the same bits
// whatever dies, since it does not depend on the number of ranks. Under torchrun, srun or mpirun, and in one process by
// itself, the same program trains with one group: it ends with the error of the first rank that fails.
//
// A step is a transaction without a vote. Commit() applies and counts it, when nothing can fail any more. If a rank
// dies, the counts of the ranks that are left differ by one at most, because every step has a collective. A rank that
// is behind gets the state of the ranks that are ahead. If all counts are equal, nobody has applied the step that was
// under way, and it is repeated.
//
// The rank that dies may be the fault of the training itself. So a cause that comes again and again ends the job:
// Options::failures_per_cause. Other options find numbers that are not finite, and parameters that differ on one rank.

#ifndef LOCKSTEP_ELASTIC_WORLD_H_
#define LOCKSTEP_ELASTIC_WORLD_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/environment/rank_environment.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/launch/link/agent_link.h"

namespace lockstep::elastic {

namespace internal {
class Generation;
class KeptModel;
class KeptState;
class RankSteps;
class Shards;
struct Healing;
struct KeptThing;
struct Shard;
}  // namespace internal

template <typename Net>
class ShardedModel;

template <typename Base>
class ShardedOptimizer;

// 75, of a program whose state is saved, and that can go on when it is started again. See World::IsResumable().
using launch::kResumableExitCode;

struct Options {
  int min_ranks = 1;                                  // fewer ranks do not train, but wait for others
  absl::Duration wait_for_ranks = absl::Minutes(10);  // so long
  int max_ranks = 0;  // more processes wait to take a rank's place; with virtual ranks, their number. 0: any number
  std::string backend = "auto";                // of the groups; see comm::InitOptions
  absl::Duration timeout = absl::Minutes(30);  // for meeting, and for each collective; at least leave_timeout
  // For the step under way when a rank dies; then SIGKILL. At least 3 s: if rank 0 is stopped, the others need 1.3 s.
  absl::Duration leave_timeout = absl::Seconds(10);
  absl::Duration check_interval = absl::Milliseconds(50);  // about how often Commit() asks whether a rank has come

  // The job ends if so many failures by one cause come within so many steps. Failures count that a rank makes itself:
  // an error of `train` or an exception, a process that exits, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS and
  // SIGTRAP, a step that is not finite, or a rank that is killed since it has not left in leave_timeout. Causes that
  // differ only in numbers are the same. 0: any number of failures.
  int failures_per_cause = 3;
  int64_t failure_window = 10;

  // Commit() looks at the gradients and parameters of the modules that are kept. If one has a NaN or an infinity on any
  // rank, no rank applies the step. It is repeated, and counts as a failure: of all ranks, since an average does not
  // say from which rank it comes. While it is repeated, each rank looks at its own gradients before they are averaged,
  // so a second failure is of the rank that makes it. One small all-reduce a step. Not with a ddp::GradScaler, which
  // skips such steps.
  bool refuse_non_finite = false;

  // false: the ranks are in one generation that cannot regroup, as where Lockstep's launch has not started them. So
  // launch ends all ranks when one fails, and starts all of them again if it may. For a training whose result depends
  // on who takes part.
  bool regroups = true;
  // Where the ranks of such a generation meet, and this rank's place among them; see comm::InitOptions.
  std::string init_method = "env://";
  comm::ExplicitRank explicit_rank;

  // After each so many steps the ranks compare their parameters by a hash; 0: never. If a rank differs from more than
  // half of the ranks, a line names the rank, the tensors and the step, and the rank gets the state of the others. So a
  // flipped bit does not last, but gradients that were computed with it were used. Without a majority, Commit() returns
  // DataLoss with the names, on all ranks. Only for parameters that are equal on all ranks.
  int64_t check_every = 0;
};

// Not thread-safe.
class World {
 public:
  // Each rank calls it once, as early as is possible: from then on ranks may die. The options must be the same on all
  // ranks. FailedPrecondition: this process has called it before. InvalidArgument: bad options.
  static absl::StatusOr<std::unique_ptr<World>> Join(const Options& options = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Names a thing that is the same on all ranks after each step, and that outlives them. All ranks keep the same things
  // under the same names, before Run(). The things must outlive the World. InvalidArgument: the name is taken.
  //
  // A module's buffers, and variables, return to their values at the last Commit() before a step is repeated.
  // Parameters and optimizers must change in Commit() only.
  absl::Status Keep(const std::string& name, torch::nn::Module& module);
  absl::Status Keep(const std::string& name, torch::optim::Optimizer& optimizer);
  // Each parameter's state is on two ranks: see sharded_optimizer.h.
  template <typename Base>
  absl::Status Keep(const std::string& name, ShardedOptimizer<Base>& optimizer);
  // Each piece of its parameters is on two ranks: see sharded_model.h.
  template <typename Net>
  absl::Status Keep(const std::string& name, ShardedModel<Net>& model);
  // A variable without pointers: a number, or a struct such as sampler::SamplerState.
  template <typename T>
  absl::Status Keep(const std::string& name, T* variable);
  // A thing with StateDict() and LoadStateDict(), such as checkpoint::LRScheduler. Change it in Commit() only.
  template <typename T, typename = decltype(std::declval<T&>().LoadStateDict(std::declval<T&>().StateDict()))>
  absl::Status Keep(const std::string& name, T& thing);
  // A thing with State() and LoadState() of a struct without pointers, such as ddp::GradScaler. Change it in Commit()
  // only.
  template <typename T, typename State = decltype(std::declval<T&>().State()),
            typename = decltype(std::declval<T&>().LoadState(std::declval<State>()))>
  absl::Status Keep(const std::string& name, T& thing);
  // Anything else. It is not taken back when a step is repeated: change it in Commit() only.
  absl::Status Keep(const std::string& name, std::function<absl::StatusOr<checkpoint::Value>()> save,
                    std::function<absl::Status(const checkpoint::Value& value)> load);

  // Calls `train` with a group of all ranks, and again with a new group whenever a rank has died or come. Before, it
  // makes what was kept equal on all ranks: ranks that are behind get the state from the memory of the ranks that are
  // ahead, each of which sends a part. At the start, rank 0's state counts. So the wrapper needs no init_sync. Objects
  // that use the group, such as DDP's wrapper and the loader, are made in `train`.
  //
  // Returns OK when `train` has returned OK on all ranks of a generation. If it returns an error or throws on any rank,
  // all ranks form a new group and repeat the step, until Options::failures_per_cause ends the job. The second error of
  // a rank within Options::failure_window steps is returned, unless it is alone: end the process then, and a new one
  // takes its place. The reason of each new generation is a line of the launcher. Errors:
  // - InvalidArgument: nothing is kept; the ranks keep different things; or min_ranks is more than the launcher starts.
  // An
  //   InvalidArgument of `train` before the first step of the job ends the job at once.
  // - DataLoss: bytes of the state changed on the way to this rank, or no rank has the state any more. With a
  //   ShardedOptimizer it is lost if both ranks that had a parameter's state have died at once. The next Commit() or
  //   GatherShards() finds that.
  // - Aborted, on all ranks: one cause has failed failures_per_cause times. The launcher ends the job with that cause.
  // - IsResumable(): fewer than min_ranks were there for wait_for_ranks.
  // - The errors of AgentLink::Join().
  absl::Status Run(const std::function<absl::Status(comm::ProcessGroup* group)>& train);

  // The next step is number `step`, for all that names steps: errors, and the launcher's lines and status. So a program
  // that has loaded a checkpoint of 5000 steps reads "step 5003" in all lines alike. Call it on every rank that has
  // loaded one: before Run(), or in `train` while commits() is 0. Ranks that come later are told. Without it the first
  // step is number 0.
  // FailedPrecondition: a step has been committed. InvalidArgument: `step` is negative.
  absl::Status BeginAt(int64_t step);

  // Ends a step: calls `apply`, which steps the optimizer and must not use the group. Call it on every rank after the
  // backward, and return its error from `train`: the ranks must regroup. A collective: before `apply`, all ranks get
  // rank 0's buffers, as DDP gives them at the next forward; otherwise they would be lost with rank 0. Without buffers,
  // most calls exchange nothing. With parameters on a GPU it waits until the GPU has done the step. If `apply` throws,
  // Run() returns that at once: this rank should end, and is started again.
  //
  // With a ShardedOptimizer it first waits for all ranks, and after `apply` it gives each rank the parameters that
  // other ranks have stepped. So in `apply` most parameters still have their old values: derive nothing from them
  // there, such as averaged weights. If a rank dies meanwhile, this call may form the next group, since the others may
  // have applied the step already; `apply` then runs after that.
  absl::Status Commit(const std::function<void()>& apply);

  // Gives rank `to` the state of all parameters of the sharded optimizers until its next Commit(), to save it with
  // checkpoint::OptimizerStateDict(), and the parameters of sharded models until their next forward. `with_states` =
  // false: only these parameters. A collective, in `train`, between two steps. InvalidArgument: `to` is not a rank.
  absl::Status GatherShards(int to = 0, bool with_states = true);

  // Returns whether Run() has returned since there were too few ranks. Every rank that is there has the newest state
  // then, and generation().rank 0 has the newest state of all parameters of sharded optimizers. It should save the
  // state and then end, as the others do, with kResumableExitCode. The launcher starts nobody again, and ends with that
  // code too.
  static bool IsResumable(const absl::Status& status);

  // The steps that all ranks have completed, since the first start of the job or the checkpoint that was loaded.
  int64_t commits() const;

  // Returns whether the ranks form a new group when one of them dies or comes: Options::regroups is true, and
  // Lockstep's launch has started them, and not with a static rendezvous of several nodes. Otherwise Run() returns an
  // error of `train` or of another rank, and can be called once.
  bool is_elastic() const { return link_ && generation_.regroups; }

  // The ranks of the group that `train` has.
  const launch::RankGeneration& generation() const { return generation_; }

 private:
  World(const Options& options, std::unique_ptr<launch::AgentLink> link);
  static absl::Status Check(const Options& options);
  absl::Status KeepBytes(const std::string& name, void* data, size_t size);
  static absl::Status CopyBytes(const checkpoint::Value& value, void* data, size_t size);
  absl::Status KeepSharded(const std::string& name, torch::optim::Optimizer& optimizer, internal::Shard& shard);
  absl::Status KeepModel(const std::string& name, internal::KeptModel& model);
  static void RememberBuffers(internal::KeptThing* thing);
  absl::Status CheckModels() const;
  void KeepHistory();
  checkpoint::Value History() const;
  absl::Status SetHistory(const checkpoint::Value& value);
  // The life of a generation: it is joined; its ranks meet; they heal, wait for others and train; they leave it.
  absl::Status JoinGeneration();
  std::optional<absl::Status> JoinAndMeet();
  absl::Status HealAndTrain(const std::function<absl::Status(comm::ProcessGroup* group)>& train);
  std::optional<absl::Status> Leave(const absl::Status& status, bool keeps_group = false);
  absl::Status Heal();
  absl::Status CompleteStep();
  absl::Status Take(const internal::Healing& healing);
  absl::Status AwaitRanks();
  absl::Status Apply(const std::function<void()>& apply);
  absl::Status CheckShards();
  absl::Status StepShards(const std::function<void()>& apply);
  absl::Status MeetBeforeStep(const absl::Status& status, const std::function<void()>& apply);
  void CountStep();
  absl::Status RefuseNonFinite();
  absl::Status CompareParameters();
  absl::Status AgreeToGoOn();
  bool IsInTraining() const { return present_ && !left_group_; }
  comm::ProcessGroup& group() const;

  const Options options_;
  const std::unique_ptr<launch::AgentLink> link_;  // null: one generation, which cannot regroup
  const std::unique_ptr<internal::KeptState> kept_;
  const std::unique_ptr<internal::Shards> shards_;
  const std::unique_ptr<internal::RankSteps> steps_;  // what this rank does next
  launch::RankGeneration generation_;                 // the last one that was joined
  std::unique_ptr<internal::Generation> present_;     // the same, until this rank leaves it
  std::unique_ptr<comm::ProcessGroup> left_group_;    // Commit() has left it, and `train` may still use it
  std::optional<absl::Status> end_;                   // of Run()
  launch::JoinOptions join_;                          // for the next generation
  absl::Time waits_until_ = absl::InfiniteFuture();   // for more ranks
};

template <typename T>
absl::Status World::Keep(const std::string& name, T* variable) {
  static_assert(std::is_trivially_copyable_v<T>, "give functions that save and load it");
  return KeepBytes(name, variable, sizeof(T));
}

template <typename T, typename>
absl::Status World::Keep(const std::string& name, T& thing) {
  const auto save = [&thing]() -> absl::StatusOr<checkpoint::Value> { return thing.StateDict(); };
  return Keep(name, save, [&thing](const checkpoint::Value& value) { return thing.LoadStateDict(value); });
}

template <typename T, typename State, typename>
absl::Status World::Keep(const std::string& name, T& thing) {
  static_assert(std::is_trivially_copyable_v<State>, "give functions that save and load it");
  const auto save = [&thing]() -> absl::StatusOr<checkpoint::Value> {
    const State state = thing.State();
    return checkpoint::Value::Bytes({reinterpret_cast<const char*>(&state), sizeof(state)});
  };
  return Keep(name, save, [&thing](const checkpoint::Value& value) -> absl::Status {
    State state;
    LOCKSTEP_RETURN_IF_ERROR(CopyBytes(value, &state, sizeof(state)));
    return thing.LoadState(state);
  });
}

template <typename Base>
absl::Status World::Keep(const std::string& name, ShardedOptimizer<Base>& optimizer) {
  return KeepSharded(name, optimizer, optimizer.shard_);
}

template <typename Net>
absl::Status World::Keep(const std::string& name, ShardedModel<Net>& model) {
  return KeepModel(name, *model.kept_);
}

}  // namespace lockstep::elastic

#endif  // LOCKSTEP_ELASTIC_WORLD_H_
