// A training with elastic::World on one node, in virtual time: the launcher's decisions (Membership, NodeSlots) and
// World's (rank_steps.h, healing_plan.h), with ranks, collectives, messages, the clock and all failures from one seed.
// A seed replays exactly.
//
//   Simulation::Config config;
//   config.seed = 7;
//   const launch::simulator::Report report = Simulation(config).Run();
//   // report.violation: "" or what went wrong
//
// A state is a number that says which steps were applied, in which order. An auditor looks after each event:
//   - a state with n steps has the steps 1 to n, each once
//   - the newest state of the job gets older only when a process dies, and by one step if a process with it is left
//   - ranks train only if their states are equal, and no process that lives has a newer one
//   - a rank that dies while it sends its state takes no other rank's state with it
//   - a planned change repeats no step: all ranks leave the generation with the same number of steps
//   - a step begins with the buffers of the last commit
//   - a rank ends after its second error within the window, unless it is alone or no step is complete, and not before
//   - ranks leave at once only after a failure, and after a step only if somebody waits for a place
//   - a rank hears of a generation only while it waits for one
//   - a generation has all ranks that are ready, up to the most; the first one waits for all
//   - ranks keep their order, ahead of new ones
//   - a rank that is ready takes part within a few steps if there is a place
//   - a rank that does not leave in time is killed, and not before
//   - a process takes a failed member's place: at once, or when the others have completed a step or the head start is over
//   - a place is given up when five processes in succession have failed before they were ready, and not before
//   - the reason of a generation names the member that died first, one that was killed first of all; or else the error of
//     the rank that left first
//   - all ranks of a generation know the same failures by themselves
//   - the job ends for a cause if it came too often within the window, and not before
//   - the job ends for generations without a step after ten of them, and not before
//   - in half of the schedules the optimizer is sharded: a rank's parameters, and the optimizer's states that it has, are of
//     the steps in its state; ranks step only if each state is on two ranks; a state is lost only with both of them
//   - in half of these the model is sharded too: what a parameter's owner publishes is of the steps in the state
//   - before the first generation, a process that is killed gets a successor, and one that exits ends the job, as does a
//     place that is given up
//   - once all ranks of a generation have finished, or one has and no other one is left, nothing starts again and no
//     generation forms, whatever becomes of the processes; one that has finished is not killed because it ends slowly
//   - the job succeeds only with all steps, when all ranks have finished, and ends otherwise only if its limits say so
//   - the job ends in time

#ifndef LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_SIMULATION_H_
#define LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_SIMULATION_H_

#include <stdint.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/job/membership.h"
#include "lockstep/launch/job/node_slots.h"
#include "lockstep/launch/job/rank_plan.h"
#include "lockstep/launch/simulator/engine.h"

namespace lockstep::elastic::internal {

struct CountedFailure;
struct Departure;
struct Healing;

// Times are in us.
class Simulation : launch::simulator::Engine {
 public:
  // `deaths` are of the processes in these slots, which are killed.
  struct Config : launch::simulator::Config {
    int ranks = 3;
    int spares = 0;
    int max_ranks = 0;
    int64_t steps = 12;
  };

  explicit Simulation(const Config& config);
  ~Simulation();
  launch::simulator::Report Run();

 private:
  struct Process;
  struct Generation;

  // Not if the process has died. While it is stopped, it waits.
  void AfterIn(Process* process, int64_t us, Then run);

  // The launcher.
  void Lead();
  void Start(int slot);
  void Decide();
  void AuditDecision(const launch::RankPlan& before);
  void Apply(const launch::NodeSlots::Action& action);
  void SendOrder(Process* process);
  void Begin();
  void OnFailure(Process* process, const launch::Failure& cause);
  void Die(Process* process, const std::string& how);
  bool MayEndJob(const Process& process) const;
  void End(const std::string& result);
  void EndForFailure(const std::string& ending);
  bool IsVerdict(const std::string& result) const;
  void Fault();

  // A rank, as elastic::World has it.
  void Join(Process* process, const std::string& reason, const std::optional<launch::StepFailure>& failure = {});
  void Leave(Process* process, const absl::Status& status);
  void LeaveBroken(Process* process);
  void Learn(Process* process, const std::string& why);
  void NotifyOthers(const Process& process, const std::string& why);
  int64_t ErrorIn(Process* process);
  absl::Status ErrorOf(int64_t error) const;
  void Enter(Process* process, int64_t fact, Then then);
  const std::vector<int64_t>& FactsOf(const Process& process);
  void Form(Process* process, int64_t number, int rank);
  void Plan(Process* process);
  void Heal(Process* process);
  void HealState(Process* process);
  void Remember(Process* process);
  void Take(Process* process, const Healing& healing);
  void TakeFailures(Process* process, int from);
  void Trust(Process* process);
  void Train(Process* process);
  void EndStep(Process* process);
  void Commit(Process* process);
  void CountStep(Process* process);
  void Agree(Process* process);
  void Finish(Process* process);

  // With a sharded optimizer.
  int64_t ShardsOf(const Process& process) const;
  void Ready(Process* process);
  void StepShards(Process* process);
  void ShareParameters(Process* process);
  void Spread(Process* process);
  void Divide(Process* process);
  void Publish(Process* process, int64_t steps);
  void LoseShard(Process* process, size_t parameter);
  void AuditShards(const Process& process);

  void AuditEvent();
  int64_t StartOf(const Process& process) const;
  void AuditTimes();
  void AuditForm(const Generation& generation);
  void AuditMembers(const Generation& generation);
  void AuditReason(const Generation& generation);
  void AuditBarren(const Generation& generation);
  void AuditBreak();
  void AuditPlan();
  void AuditStart(const Process& before);
  void AuditGiveUp(Process* process);
  void AuditKill(const Process& process);
  void AuditJoin(Process* process);
  void AuditLeave(Process* process, const absl::Status& status, const Departure& departure);
  void AuditLostShard(size_t parameter);
  void AuditTraining(const Process& process);
  void AuditStep(const Process& process);
  std::optional<CountedFailure> FailureBefore(const Process& process) const;
  void AuditFailures(const Process& process);
  void AuditEqual(const Process& process);
  void AuditLoss(const Generation& generation);
  void AuditEnd(const std::string& result);

  const launch::RankPlan& plan() const { return membership_->plan(); }
  Generation& In(const Process& process);
  int64_t Newest() const;
  size_t MostRanks() const;
  bool HasFinished() const;  // a rank, as the launcher knows
  bool IsComplete() const;   // the same: nothing is left to do
  // Returns whether another process may follow a dead one. Once a rank has finished, it must have something to do.
  bool MayStartAfter(const Process& before) const;
  void OnDone();

  const Config config_;
  launch::AgentState agent_;  // what the launcher says of its node
  std::optional<launch::NodeSlots> node_;
  std::optional<launch::Membership> membership_;
  std::vector<std::unique_ptr<Process>> processes_;  // all that there have been
  std::vector<Process*> slots_;                      // the last one of each
  std::map<int64_t, std::unique_ptr<Generation>> generations_;
  std::vector<uint64_t> states_;              // after each number of steps
  int64_t newest_ = 0;                        // steps of the newest state before this event
  bool died_ = false;                         // in this event
  bool checks_ = false, broadcasts_ = false;  // what a step has besides the backward
  bool shards_ = false;                       // the optimizer is sharded
  bool pieces_ = false;                       // and the model: parameters are where their optimizer's states are
  bool agrees_ = false;                       // all ranks get the error of one
  bool stays_ = false;                        // a process has said that it stays
  bool has_head_start_ = false;
  int64_t broken_step_ = -1;                  // a rank fails in it nearly always
  std::vector<CountedFailure> errors_;        // of steps
  std::map<int, std::optional<int>> deaths_;  // the kind of each process's failure, if it is its own
  std::optional<int64_t> regroups_since_us_;  // as the launcher knows
  std::optional<std::string> left_with_;      // the same: the first error with which a member left
  std::string left_because_;                  // the same: the first rank that left, unless a death was known before
  bool ends_as_planned_ = false;              // the same
  int64_t reported_step_ = 0;                 // the highest of which the launcher has heard
  std::optional<int64_t> progressed_us_;      // when it heard of a new one in this generation
  int barren_ = 0;                            // broken generations in succession without one, before this one
  bool over_ = false;
};

}  // namespace lockstep::elastic::internal

#endif  // LOCKSTEP_ELASTIC_SIMULATOR_INTERNAL_SIMULATION_H_
