// Decides which processes of one or several nodes are the ranks that train together, while processes fail, start again
// and come. For programs whose ranks stay alive when another one fails (agent_link). Knows neither processes, sockets nor
// a clock.
//
//   Membership membership(4, limits);
//   membership.OnReady(slot, ask, now);              // and what else happens
//   membership.Update(now);                          // then, and at next_look()
//   for (const auto& decision : membership.Take()) ...
//
// A slot is a place for one process; a process that is started again gets the slot of the one before. If there are more
// slots than ranks, or if processes ask for fewer ranks, ready processes that are not needed are spares: the next
// generation has them in the places of members that failed.
//
// One life of a job: kForming until as many processes are ready as there are ranks, then kRunning. While it forms, and
// once a process has said that it stays, one that is killed is started again; one that exits ends the job, since it would
// do so on each start. A failure of a member makes it kRegrouping: every member that is left must leave the generation,
// and when all are ready, the next one forms with them and with new processes that are ready. A new process that gets
// ready while a generation runs makes it regroup after a step, and so does a node that is to leave.
//
// A member that has done its work may take long to end, and is not waited for. When all members have done theirs, the
// job is complete: nothing starts any more, whatever becomes of the processes.
//
// The object begins with one node. A job of several nodes adds the others, and says which are lost or are to leave.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_MEMBERSHIP_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_MEMBERSHIP_H_

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/internal/restart_policy.h"

namespace lockstep::launch::internal {

class Membership {
 public:
  struct Limits {
    int ranks = 1;         // of the first node; a generation has so many at most, and the first one has so many
    int spares = 0;        // slots of the first node besides
    int max_restarts = 0;  // of processes, in the window; 0: as many as the processes ask for
    absl::Duration restart_window = absl::InfiniteDuration();
    // When the first of Memory::restarts were made. The others count as if they were made now.
    std::vector<absl::Time> earlier_restarts;
    absl::Duration wait_for_ranks = absl::Minutes(10);  // how long fewer than the least number of ranks wait for others
    // How long the process that takes a failed member's place is not started while the others have not completed a step
    // without it: as it loads its libraries it would take their processors.
    absl::Duration head_start;
  };

  // A process's failure. Of several, the first in the order of FirstCause() is the reason of the next generation.
  struct Cause {
    std::string text;  // a sentence about it
    bool consequence = false;
    bool killed = false;
    int64_t time_ns = 0;
    bool exited = false;  // by itself: with an exit code, or because of an error
  };

  // What a process wants; see JoinOptions.
  struct Ask {
    int min_ranks = 1;
    int max_ranks = 0;
    int max_restarts = -1;
    absl::Duration leave_timeout;
    std::string reason;
  };

  struct Decision {
    enum class Kind {
      kForm,       // `slots` are the ranks of a new generation, in their order
      kAfterStep,  // these members must leave the generation between two steps
      kNow,        // these members must leave the generation, which is broken
      kStart,      // start the processes of these slots again
      kKill,       // these members have not left in time
      kGiveUp,     // these slots get no process any more
    };
    Kind kind;
    std::vector<int> slots;
    std::string reason;  // for people
  };

  enum class State {
    kStarting,
    kReady,
    kMember,
    kDone,  // was a member, has done its work, and has not ended
    kAwaited,
    kFinished,
    kGivenUp,
    kLost,
  };
  enum class Phase { kForming, kRunning, kRegrouping };

  // All that another object needs to go on. Times are not in it: they begin anew.
  struct Memory {
    struct Slot {
      State state = State::kStarting;
      int rank = -1;          // in the last generation, if this process was its member
      int local_rank = -1;    // the same
      bool owes = false;      // its process was in the last generation, and failed before it had finished
      int failed_starts = 0;  // processes in succession that failed before they were ready
      int process = 1;        // the number of processes that have been started in this slot
      int node = 0;
    };

    struct Node {
      int ranks = 1;  // of this node in a generation at most
      int first = 0;  // of its slots
      int slots = 1;
      bool leaves = false;
      bool gone = false;  // lost, or left
    };

    std::vector<Node> nodes;
    std::vector<Slot> slots;
    Phase phase = Phase::kForming;
    bool stays = false;  // a process has said so
    bool formed = false;
    int64_t generation = 0;
    std::vector<int> members;
    std::string reason;         // why the last generation ended, unless there are causes
    std::string failed_start;   // how the last process failed that was to come, since that generation formed
    std::vector<Cause> causes;  // the failures of members since that generation began; the first few
    int failures = 0;           // the number of all of them
    bool changes = false;       // members have been told to leave after a step
    bool progressed = false;    // a step was completed in this generation
    int barren = 0;             // broken generations in succession without a step
    int finished_members = 0;   // that have done their work
    bool agreed = false;        // a member has said that the work of all members of this generation is done
    bool complete = false;      // nothing is left to do
    bool resumes = false;       // one of these members has asked for more to do
    bool over = false;          // OnFailure() has said so
    int64_t step = -1;          // the highest that was completed
    int restarts = 0;
    std::string ending;
  };

  // A process has been started in every slot at `now`, which never decreases.
  Membership(const Limits& limits, absl::Time now);
  // Goes on where another object was.
  Membership(const Limits& limits, Memory memory, absl::Time now);

  // A node comes, and processes are started in its slots, which may be a gone node's. Its index: the first node has 0.
  int AddNode(int ranks, int spares, absl::Time now);
  // A node is there no more, and neither are its processes. A process that has finished counts all the same.
  void LoseNode(int node, const Cause& cause, absl::Time now);
  // The processes of a node leave between two steps. Then the node is gone.
  void LeaveNode(int node, const std::string& reason);
  bool IsGone(int node) const { return memory_.nodes[node].gone; }
  // A generation forms if processes of so many nodes are ready, as its ranks or beyond the most of them. Others may come
  // if `more_may_come`.
  void NeedNodes(int least, bool more_may_come);
  // The name of the process of a slot in reasons; "process 3" unless it is set.
  void set_name(std::function<std::string(int)> name) { name_ = std::move(name); }
  // If set: a generation does not form while the process of this slot, which would be rank 0, must not.
  void set_may_be_rank_0(std::function<bool(int)> may_be_rank_0) { may_be_rank_0_ = std::move(may_be_rank_0); }

  // A process says that it stays when another one fails.
  void OnStays();
  // A process waits for a generation, and has left the one of the number `left` (0: none).
  void OnReady(int slot, int64_t left, const Ask& ask, absl::Time now);
  void OnProgress(int slot, int64_t step);
  // A process has done its work. `all`: and so have all members of its generation, as they have agreed.
  void OnDone(int slot, bool all);
  // A process says that the job must end.
  void OnEndJob(const std::string& reason);
  // For an object that goes on: what the process of this slot has asked for before.
  void SetAsk(int slot, const Ask& ask);

  // A process has failed. Whether the others go on without it. If not, all of them must end, and ending() is what the
  // last message adds to the failure.
  bool OnFailure(int slot, const Cause& cause, absl::Time now);
  void OnSuccess(int slot);

  // Call it after the events above, and at next_look().
  void Update(absl::Time now);
  absl::Time next_look() const { return next_look_; }
  // What the ranks wait for, if others must come before a generation can form; else "".
  const std::string& awaited() const { return awaited_; }

  // The decisions since the last call, in their order. A process that one of them names may have ended since.
  std::vector<Decision> Take();

  // Whether the processes are kept when one of them is killed, and when one exits: a generation has formed.
  bool kept() const { return memory_.stays; }
  bool formed() const { return memory_.formed; }
  int64_t generation() const { return memory_.generation; }
  // Of the generation that runs, or ran last: slots in the order of the ranks.
  const std::vector<int>& members() const { return memory_.members; }
  // The rank of a process in that generation, or -1; and its local rank, which it has for as long as it lives.
  int rank(int slot) const { return memory_.slots[slot].rank; }
  int local_rank(int slot) const { return memory_.slots[slot].local_rank; }
  int restarts() const { return memory_.restarts; }
  const Memory& memory() const { return memory_; }

  // Whether all members have ended with success, and so have the processes that were started again for a member that
  // failed when the others were about to finish; or whether the job is complete and all members have ended. Other
  // processes are then not needed. Before a generation has formed: whether all processes have ended with success.
  bool finished() const;
  bool complete() const { return memory_.complete; }
  // The failures of members in the last generation of a job that is complete; "" if there is none.
  static std::string LateFailures(const Memory& memory);

  // Whether a process is to be started.
  bool awaits_start() const;

  // Why the ranks cannot go on, although none of them has failed just now. OK while they can.
  const absl::Status& verdict() const { return verdict_; }
  const std::string& ending() const { return memory_.ending; }

 private:
  using Slot = Memory::Slot;

  // What a process has asked for, and when it was started or is to be.
  struct Times {
    Ask ask;
    absl::Time started;
    absl::Time start_at;         // while kAwaited
    absl::Time head_start_ends;  // the same: for the others
  };

  std::vector<int> In(State state) const;
  static std::string CausesText(const Memory& memory);
  std::string Reason() const;
  void Decide(Decision::Kind kind, std::vector<int> slots, std::string reason = "");
  void Regroup(absl::Time now);
  void Break(const Cause& cause, bool is_failure, absl::Time now);
  void NoteCause(const Cause& cause);
  bool HasBarrenGenerations(absl::Time now);
  RestartPolicy& Policy(absl::Time now);
  bool MayRestart(int slot, bool was_starting, absl::Time now);
  bool HaveAllFinished() const;
  bool Completes();
  void GoOnAfterWork(absl::Time now);
  bool HasRanks(int node) const;
  static bool WasInLastGeneration(const Memory::Slot& process);
  void Drop(int slot);
  void StartAwaited(absl::Time now);
  bool OthersGoOn() const;
  void KillLate(absl::Time now);
  void TryToForm(absl::Time now);
  bool AllAreReady(const std::vector<int>& ready) const;
  bool MayForm(const std::vector<int>& ready, absl::Time now);
  void WaitForMore(const std::string& number, absl::Time now);
  void WaitForAll(size_t ready, absl::Time now);
  void DropLeavingNodes();
  std::vector<int> Candidates() const;
  int CountOnNode(const std::vector<int>& slots, int node) const;
  int NodesOf(const std::vector<int>& slots) const;
  int LeastRanks(const std::vector<int>& slots) const;
  size_t MostRanks(const std::vector<int>& slots) const;
  void Form(std::vector<int> ready, absl::Time now);
  bool SomebodyComes() const;
  void TellThatOneIsReady(int slot);
  int FreeLocalRank(int slot) const;
  void LookAt(absl::Time time);

  const Limits limits_;
  Memory memory_;
  std::vector<Times> asks_;  // by slot
  int least_nodes_ = 1;
  bool more_may_come_ = false;
  std::function<bool(int)> may_be_rank_0_;
  std::function<std::string(int)> name_;
  absl::Time formed_at_, regroups_since_;
  absl::Time kill_at_ = absl::InfiniteFuture();  // members that have not left by then
  std::optional<RestartPolicy> policy_;          // made when the first process fails
  std::string awaited_;
  absl::Status verdict_;
  std::vector<Decision> decisions_;
  absl::Time next_look_ = absl::InfiniteFuture();
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_MEMBERSHIP_H_
