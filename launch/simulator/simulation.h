// A job of several nodes in virtual time: the agents' and the coordinator's own decisions, with the network, the ranks,
// the clock and all failures from one seed. A seed replays exactly.
//
//   Simulation::Config config;
//   config.seed = 7;
//   const simulator::Report report = Simulation(config).Run();
//   // report.violation: "" or what went wrong
//
// An auditor looks after each event:
//   - a start has one list of members, between the least and the most, at one address, with ranks from 0
//   - an agent starts a start once, and only if it is a member
//   - nobody starts a start after a later one, or while a node that the others can reach runs an earlier one
//   - rank 0's port is one that its node holds, and no earlier start had it
//   - restarts after failures are not more than allowed
//   - the job succeeds only if all ranks of one start have
//   - a start ends for a failed rank, a lost node or one that leaves only if there was one; a node whose success the
//     leader knows is not lost
//   - nodes of one start keep their order in the next one
//   - a node that has left is not lost, and the job ends for it only if too few others stay
//   - a job of ranks that stay, with a fixed number of nodes, ends at once if one leaves and no other one is there
//   - a node that leaves starts no ranks and returns soon, and one that sees its start end ends its ranks
//   - a node that is drained leaves, and takes part in no later start; a resize is decided
//   - a start forms soon after enough nodes are ready, and ends soon after the leader knows of a failed rank
//   - a launcher of another job takes no part, is not heard, and fails alone
//   - all agents that see the end return the same result, which names the host of the first failure
//   - every agent that lives returns in time
// And where processes stay when another one fails (launch/link):
//   - a generation of ranks has one list of members, its ranks are 0, 1, ..., and rank 0's node holds its port; it has
//     max_ranks of them at most
//   - a process hears of a generation only while it waits for one, and when all that can be reached have left the others
//   - before the first generation, the others go on if a process is killed, and the job's start ends if one exits
//   - a process is killed only if it has had time to leave
//   - processes keep their order, so that rank 0 stays rank 0
//   - a node's processes are ended only if it leaves, is out of reach or not needed, or if the job ends
//   - the job ends for a failure only if the limits of restarts or times say so
//   - the reason of a generation begins with the first failure in the one before, unless a lost node explains it; nobody
//     waits for the failure of a process that has done its work
//   - a generation forms soon after all that live wait for one, and they are enough: for the first one, all
//   - the job succeeds only if all ranks of the last generation have done their work
//   - of nodes that did not reach each other in the generation before, not both take part, if enough nodes are left
//   - a node is left out only if a rank has said so and enough others are left, and it is tried again when its time is over, and not before
//     unless all ranks start again
//   - in half of the schedules the ranks agree that all have done their work. Once they have, nothing starts again, none is
//     killed because it takes long to end, and the job fails only for a rank that failed by itself

#ifndef LOCKSTEP_LAUNCH_SIMULATOR_SIMULATION_H_
#define LOCKSTEP_LAUNCH_SIMULATOR_SIMULATION_H_

#include <stdint.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/launch/job/agent_steps.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/simulator/engine.h"

namespace lockstep::launch {

// Times are in ms.
class Simulation : simulator::Engine {
 public:
  // `faults` are random ones: see Fault().
  struct Config : simulator::Config {
    int agents = 3;
    bool leader_can_change = false;  // as with etcd; otherwise the first agent leads, as with TCP
    bool ranks_stay = false;         // when another one fails; otherwise all end together
    int max_ranks = 0;               // of ranks that stay: the most that a generation may have; 0: any number
    bool stranger = false;           // a launcher of another job comes to this one
    bool cuts = false;               // nodes whose ranks do not reach each other, and ranks that run for longer
    int64_t crash_ms = -1;           // the last agent dies at this time
    int min_nodes = 0;               // 0: from the seed
    int64_t delay_ms = 0;            // of each message; 0: from the seed
  };

  struct Growth {
    // The time when each generation had started everywhere, and the number of messages until then.
    std::map<int64_t, int64_t> started_ms, started_messages;
    int64_t last_join_ms = 0;
  };

  explicit Simulation(const Config& config);
  ~Simulation();
  simulator::Report Run();
  const Growth& growth() const { return growth_; }

 private:
  struct Node;
  struct Process;

  // The network and the store of the rendezvous.
  int64_t Delay();
  void Post(Node* node);
  void Broadcast();
  void DeliverDecision(Node* node);
  void Look();
  void LookAt(absl::Time time);
  void ElectLeader();
  void Evict(Node* node, int64_t epoch);

  void JoinStranger();
  void AnswerStranger();

  // Nodes.
  void Fault();
  void Join(Node* node);
  void Crash(Node* node);
  void Cut(Node* node);
  void Restore(Node* node);
  void RecordSilence(Node* node, int64_t epoch);
  void LoseRendezvous(Node* node, int64_t since);
  void Signal(Node* node);
  void Drain(Node* node);
  void Resize(Node* node);
  void FailRank(Node* node);
  void FailNode(Node* node, bool consequence);
  void EndRanks(Node* node, bool succeeded, Failure failure);
  void StartRanks(Node* node, const NodeStart& start);
  void AfterChange(Node* node);
  void Return(Node* node, absl::Status result);

  // Processes that stay when another one fails.
  void AfterIn(Node* node, int slot, int64_t ms, std::function<void(Process*)> run);
  void StartProcesses(Node* node);
  void StartProcess(Node* node, int slot);
  void SayThatItStays(Node* node);
  void SayReady(Node* node, int slot, int64_t left, const std::string& reason);
  int64_t RunTime() const;
  // Nodes whose ranks do not reach each other, although their launchers reach the rendezvous.
  void CutRanks();
  void AwaitSilence(Node* node, int slot, int64_t generation);
  std::vector<std::string> SilentHosts(const Node& node, int64_t process, int64_t generation);
  void PostSlots(Node* node);
  void Apply(Node* node);
  void SendGeneration(Node* node, int slot);
  void SendOrder(Node* node, int slot);
  void TryToFinish(Node* node, int slot, int64_t generation);
  bool HaveAllDone(int64_t generation);
  void FinishProcess(Node* node, int slot);
  void EndProcess(Node* node, int slot);
  void FailProcess(Node* node, int slot);
  void FailAnyProcess(Node* node);

  // The auditor.
  void AuditDecision(const JobState& job, bool told_success);
  void AuditStart(const Node& node, const NodeStart& start);
  void AuditOrder(const JobState& job);
  void AuditReason(const JobState& job);
  void AuditLeavers(const JobState& job);
  void AuditCancelled(const JobState& job);
  void AuditNeeded(const JobState& job);
  void AuditStaying(const JobState& job);
  void AuditTold(const Node& node, int slot);
  void AuditFirstCause(const Node& node);
  void AuditKill(const Node& node, int slot);
  void AuditEnding(const Node& node);
  void AuditRanksWait();
  void AuditComplete(const JobState& job);
  void AuditLeftOut(const JobState& job);
  void AuditCuts(int64_t generation);
  void RecordIfComplete(int64_t generation);
  void AuditAfterWork(const std::string& what, int64_t generation);
  void RecordFailure(const Node& node, const Process& process, const Failure& failure);
  // Return whether the job's processes stay when one is killed, and when one exits.
  bool Stays(const JobState& job) const { return job.ranks.start == job.start && job.ranks.stays; }
  bool Formed(const JobState& job) const { return Stays(job) && job.ranks.formed; }
  // Return the limits that somebody has asked for last, or the ones that all launchers were started with.
  int MinNodes(const JobState& job) const { return job.limits.number > 0 ? job.limits.min_nodes : limits_.min_nodes; }
  int MaxNodes(const JobState& job) const { return job.limits.number > 0 ? job.limits.max_nodes : limits_.max_nodes; }
  void AuditRequests(const JobState& job);
  void AuditLimits(const JobState& job, bool is_new);
  void AuditWaiting();
  int Candidates() const;
  bool HasToldSuccess(int64_t generation);
  void AuditEnd();

  // Returns a number that stands for the decision and the states of the leader and of each node.
  uint64_t StateNow() const;

  Node* Leader();
  bool ReachesStore(const Node& node) const;
  bool Reachable(const Node& node) const;

  const Config config_;
  JobLimits limits_;
  std::vector<std::unique_ptr<Node>> nodes_;

  Agents posts_;
  std::optional<AgentSteps> stranger_;  // while it is there
  std::map<std::string, uint64_t> post_numbers_;
  JobState decision_;
  uint64_t decisions_ = 0;
  int64_t decided_ms_ = 0;                 // when the last one on its way arrives
  std::map<int64_t, int64_t> entered_ms_;  // when a leader decided on each entry of a node
  int leader_ = 0;
  uint64_t leader_epoch_ = 1;
  std::optional<Coordinator> coordinator_;  // of the leader
  int64_t look_ms_ = 0;

  // A generation of ranks, as its processes have heard of it.
  struct RankGeneration {
    struct Death {
      int node = 0;
      bool done = false;  // its work was done
      Failure failure;
    };
    int64_t told_ms = 0;
    int world_size = 0;
    int port = 0;
    std::map<int, int64_t> processes;  // by rank
    int finished = 0;
    bool passed = false;       // all have agreed that their work is done
    int64_t complete_ms = -1;  // since when none of them is left that has not done it
    std::vector<Death> deaths;
    // Which nodes did not reach each other, as its processes have said that live.
    std::map<int64_t, std::set<std::pair<int, int>>> cuts;
    uint64_t leader_epoch = 0;
    int64_t ordered_ms = -1;  // when the store had the first order to leave it
  };
  std::map<int64_t, RankGeneration> generations_;
  std::map<int, int64_t> link_ports_used_;             // the generation of ranks that used a port
  std::map<std::string, bool> failed_while_waiting_;   // how, and whether it was killed
  std::set<std::pair<int, int>> cuts_;                 // pairs of nodes
  std::map<std::string, std::set<std::string>> said_;  // all pairs of agents that ranks have named, both ways
  struct LeftOut {
    int times;
    int64_t since_ms;
    bool evicted = false;  // since then; a leader that has seen it forgets that this agent was left out
  };
  std::map<std::string, LeftOut> left_out_;  // by agent
  int64_t cuts_start_ = 0;                   // the start of all ranks to which that belongs
  int link_ports_ = 0;
  int64_t process_ids_ = 0;
  int64_t failures_in_ms_ = 0;
  int64_t ranks_wait_since_ms_ = -1;
  bool agrees_ = false;  // the ranks of a generation end their work together

  std::map<int64_t, std::vector<Member>> formed_;
  std::map<int64_t, std::vector<Member>> members_;  // of each start, as far as is known last
  std::map<int64_t, std::map<std::string, NodeStart>> started_;
  std::map<int64_t, std::map<std::string, bool>> succeeded_;
  std::map<int64_t, std::set<std::string>> told_success_;  // as the leader has heard
  int64_t form_since_ms_ = -1, failing_since_ms_ = -1;
  size_t drained_ = 0;                                 // the agents that the decision before had drained
  int64_t resized_ = 0;                                // the number of its limits
  bool has_ended_ = false;                             // the leader has decided it
  std::vector<Leaver> left_;                           // of the decision before
  std::string reason_;                                 // the same
  int restarts_ = 0;                                   // after failures
  JobState::Phase phase_ = JobState::Phase::kForming;  // of the decision before
  std::map<int, int64_t> ports_;                       // the start that used a port
  std::map<int64_t, int64_t> failures_;                // when a rank failed first, by start
  std::map<int64_t, std::set<int>> failed_;            // the nodes with a failed rank, by start
  std::map<int64_t, std::string> first_failure_;       // on which hosts; with "?" if more than ranks failed
  int64_t messages_ = 0;
  Growth growth_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_SIMULATOR_SIMULATION_H_
