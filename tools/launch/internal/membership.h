// Decides which processes of a node are the ranks that train together, while processes fail, start again and come. For
// programs whose ranks stay alive when another one fails (agent_link). Knows neither processes, sockets nor a clock.
//
//   Membership membership(4, limits);
//   membership.OnReady(slot, ask, now);              // and what else happens
//   membership.Update(now);                          // then, and at next_look()
//   for (const auto& decision : membership.Take()) ...
//
// A slot is a place for one process; a process that is started again gets the slot of the one before. If there are more
// slots than ranks, the processes that are ready and not needed are spares: the next generation has them in the places
// of members that failed.
//
// One life of a job: kForming until as many processes are ready as there are ranks, then kRunning. A failure of a member
// makes it kRegrouping: every member that is left must leave the generation, and when all are ready, the next one forms
// with them and with new processes that are ready. A new process that gets ready while a generation runs makes it
// regroup after a step.

#ifndef LOCKSTEP_TOOLS_LAUNCH_INTERNAL_MEMBERSHIP_H_
#define LOCKSTEP_TOOLS_LAUNCH_INTERNAL_MEMBERSHIP_H_

#include <stddef.h>
#include <stdint.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/internal/restart_policy.h"

namespace lockstep::launch::internal {

class Membership {
 public:
  struct Limits {
    int ranks = 1;         // of a generation at most; the first one has so many
    int spares = 0;        // slots besides
    int max_restarts = 0;  // of processes, in the window; 0: as many as the processes ask for
    absl::Duration restart_window = absl::InfiniteDuration();
    absl::Duration wait_for_ranks = absl::Minutes(10);  // how long fewer than the least number of ranks wait for others
  };

  // What a process wants; see JoinOptions.
  struct Ask {
    int min_ranks = 1;
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

  // A process has been started in every slot at `now`, which never decreases.
  Membership(const Limits& limits, absl::Time now);

  // A process waits for a generation, and has left the one of the number `left` (0: none).
  void OnReady(int slot, int64_t left, const Ask& ask, absl::Time now);
  void OnProgress(int slot, int64_t step);

  // A process has failed; `cause` is a sentence about it. Whether the others go on without it. If not, all of them must
  // end, and ending() is what the last message adds to the failure.
  bool OnFailure(int slot, const std::string& cause, absl::Time now);
  void OnSuccess(int slot);

  // Call it after the events above, and at next_look().
  void Update(absl::Time now);
  absl::Time next_look() const { return next_look_; }

  // The decisions since the last call, in their order. A process that one of them names may have ended since.
  std::vector<Decision> Take();

  // Whether the processes are kept when one fails: a generation has formed.
  bool formed() const { return generation_ > 0; }
  int64_t generation() const { return generation_; }
  // Of the generation that runs, or ran last: slots in the order of the ranks.
  const std::vector<int>& members() const { return members_; }
  // The local rank of a member of that generation: its own for as long as it lives.
  int local_rank(int slot) const { return slots_[slot].local_rank; }
  int restarts() const { return restarts_; }

  // Whether all members have ended with success, and so have the processes that were started again for a member that
  // failed when the others were about to finish. Other processes are then not needed.
  bool finished() const;

  // Whether a process is to be started.
  bool awaits_start() const;

  // Why the ranks cannot go on, although none of them has failed just now. OK while they can.
  const absl::Status& verdict() const { return verdict_; }
  const std::string& ending() const { return ending_; }

 private:
  enum class State { kStarting, kReady, kMember, kAwaited, kFinished, kGivenUp };

  struct Slot {
    State state = State::kStarting;
    Ask ask;
    int rank = -1;          // in the last generation, if this process was its member
    int local_rank = -1;    // the same
    absl::Time started;     // when the process was
    absl::Time start_at;    // while kAwaited
    bool owes = false;      // its process failed as a member, and no generation has formed since
    int failed_starts = 0;  // processes in succession that failed before they were ready
  };

  enum class Phase { kForming, kRunning, kRegrouping };

  std::vector<int> In(State state) const;
  void Decide(Decision::Kind kind, std::vector<int> slots, std::string reason = "");
  void Regroup(absl::Time now);
  void Break(const std::string& cause, bool is_failure, absl::Time now);
  bool HasBarrenGenerations(absl::Time now);
  bool MayRestart(const Slot& slot, bool was_starting, absl::Time now);
  void StartAwaited(absl::Time now);
  void KillLate(absl::Time now);
  void TryToForm(absl::Time now);
  bool MayForm(const std::vector<int>& ready, absl::Time now);
  void WaitForMore(int ready, int least, absl::Time now);
  void Form(std::vector<int> ready, absl::Time now);
  bool SomebodyComes() const;
  void TellThatOneIsReady(int slot);
  int FreeLocalRank(int wished) const;
  void LookAt(absl::Time time);

  const Limits limits_;
  std::vector<Slot> slots_;
  Phase phase_ = Phase::kForming;
  int64_t generation_ = 0;
  std::vector<int> members_;
  std::string reason_;       // why the last generation ended
  size_t failures_ = 0;      // of members since that generation began
  bool changes_ = false;     // members have been told to leave after a step
  bool progressed_ = false;  // a step was completed in this generation
  int barren_ = 0;           // broken generations in succession without a step
  int finished_members_ = 0;
  bool over_ = false;  // OnFailure() has said so
  int64_t step_ = -1;  // the highest that was completed
  absl::Time formed_at_, regroups_since_;
  absl::Time kill_at_ = absl::InfiniteFuture();  // members that have not left by then
  std::optional<RestartPolicy> policy_;          // made when the first process fails
  int restarts_ = 0;
  absl::Status verdict_;
  std::string ending_;
  std::vector<Decision> decisions_;
  absl::Time next_look_ = absl::InfiniteFuture();
};

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_INTERNAL_MEMBERSHIP_H_
