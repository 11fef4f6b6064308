// Lets a training loop ask, on all ranks together, whether the scheduler wants the machine back (SIGTERM).

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_PREEMPTION_NOTICE_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_PREEMPTION_NOTICE_H_

#include <signal.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// While an object exists, the signals are recorded and do not end the process.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto notice, PreemptionNotice::Create({SIGTERM, SIGUSR1}));
//   for (...) {
//     Train(...);
//     LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, notice->ReceivedByAnyRank(group.get()));
//     if (stop) return manager->Save(step, Checkpoint());  // and manager->Wait() if it is asynchronous
//   }
//
// A signal may reach only some ranks, and each at another time, so no rank may act on it alone: all ranks ask together
// and get the same answer. If the program is killed anyway, even in the middle of a save, no earlier file is lost.
class PreemptionNotice {
 public:
  // Handles `signals` until the object is destroyed, which restores the previous handlers. Call it on the main thread,
  // before other code changes handlers. FailedPrecondition: another object exists. InvalidArgument: a number is not a
  // signal that can be handled.
  static absl::StatusOr<std::unique_ptr<PreemptionNotice>> Create(const std::vector<int>& signals = {SIGTERM});
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  // Returns whether this process has received one of the signals since Create. Thread-safe.
  bool Received() const;

  // Returns whether any rank of `group` has received one (nullptr: this process only). Every rank must call it, and it
  // blocks until all have. Before the first signal it is one all-gather of 8 bytes a rank: call it once a step, or once
  // in several steps.
  absl::StatusOr<bool> ReceivedByAnyRank(comm::ProcessGroup* group) const;

 private:
  PreemptionNotice() = default;

  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_PREEMPTION_NOTICE_H_
