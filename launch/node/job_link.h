// The agent's side of a rendezvous, on its own thread: it posts the agent's state, reads the decisions, and while
// this agent leads, runs the coordinator. So decisions do not wait for the ranks of this node.

#ifndef LOCKSTEP_LAUNCH_NODE_JOB_LINK_H_
#define LOCKSTEP_LAUNCH_NODE_JOB_LINK_H_

#include <stdint.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/launch/job/coordinator.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch {

// Thread-safe.
class JobLink {
 public:
  // ResourceExhausted: no thread or descriptor is free.
  static absl::StatusOr<std::unique_ptr<JobLink>> Start(const JobLimits& limits,
                                                        std::unique_ptr<Rendezvous> rendezvous);
  ~JobLink();
  JobLink(const JobLink&) = delete;
  JobLink& operator=(const JobLink&) = delete;

  void Post(const AgentState& state);

  // Readable after the job's state has changed, until TakeJob().
  int fd() const { return changed_.fd(); }

  // The latest decision, {} if there is none; or why this agent cannot take part any more.
  absl::StatusOr<JobState> TakeJob();

  Rendezvous::Reach reach() const;

  // The number of nodes that are ready, if this agent leads.
  std::optional<int> ready() const;

  // See Rendezvous::Leave(). Only TakeJob() may be called afterwards.
  void Leave(absl::Duration timeout);

 private:
  struct Received {
    int64_t received_ns = 0;
    std::optional<AgentState> state;
  };

  JobLink(const JobLimits& limits, std::unique_ptr<Rendezvous> rendezvous, Event changed, Event wake);
  void Run();
  void PostPending();
  void TakeView(const Rendezvous::View& view);
  void Lead(const Rendezvous::View& view);
  void RecordReturn(bool away);
  bool AwaitsMembers(const Rendezvous::View& view);
  absl::Duration WaitTime(const Rendezvous::View& view) const;
  void Wait(absl::Duration time);

  const JobLimits limits_;
  const std::unique_ptr<Rendezvous> rendezvous_;
  const Event changed_, wake_;

  // Only the thread uses these.
  std::string decision_;
  std::vector<absl::Time> restart_times_;   // when this agent saw that the job's restarts were made
  std::optional<Coordinator> coordinator_;  // while this agent leads
  std::map<std::string, Received> agents_;
  // Until when this agent waits for the others before it leads: shortly after it was away, and without end while it is.
  absl::Time members_until_ = absl::InfinitePast();

  mutable absl::Mutex mutex_;
  absl::StatusOr<JobState> job_ ABSL_GUARDED_BY(mutex_) = JobState();
  std::string pending_post_ ABSL_GUARDED_BY(mutex_);
  std::optional<int> ready_ ABSL_GUARDED_BY(mutex_);
  Rendezvous::Reach reach_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_JOB_LINK_H_
