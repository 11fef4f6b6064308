// The scheduler wants the machine back: SIGTERM as a question that a training loop asks, on all ranks at once.

#ifndef LOCKSTEP_CHECKPOINT_MANAGER_PREEMPTION_NOTICE_H_
#define LOCKSTEP_CHECKPOINT_MANAGER_PREEMPTION_NOTICE_H_

#include <signal.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::checkpoint {

// While it lives the signals no longer end the process, but are noted.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto notice, PreemptionNotice::Create({SIGTERM, SIGUSR1}));
//   for (...) {
//     Train(...);
//     LOCKSTEP_ASSIGN_OR_RETURN(const bool stop, notice->ReceivedByAnyRank(group.get()));
//     if (stop) return manager->Save(step, Checkpoint());  // and manager->Wait() if it is asynchronous
//   }
//
// A signal reaches some ranks, each at its own time, so no rank may act on its own: all ask, and all get one answer. A
// program that is killed all the same, even in the middle of a save, loses no file that was there before.
class PreemptionNotice {
 public:
  // Handles `signals` until the notice is destroyed, which puts the handlers before back. FailedPrecondition while
  // there is another one; InvalidArgument for what is no signal that can be handled. Call it on the main thread, before
  // others change handlers.
  static absl::StatusOr<std::unique_ptr<PreemptionNotice>> Create(const std::vector<int>& signals = {SIGTERM});
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  // Whether one of the signals came to this process since Create. Any thread may ask.
  bool Received() const;

  // Whether it came to any rank of `group` (nullptr: this process alone). Every rank must call it; it blocks until all
  // have. One all-gather of 8 bytes a rank while there was no signal: ask once a step, or once in some steps.
  absl::StatusOr<bool> ReceivedByAnyRank(comm::ProcessGroup* group) const;

 private:
  PreemptionNotice() = default;

  std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MANAGER_PREEMPTION_NOTICE_H_
