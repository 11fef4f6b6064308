// A launcher's report about its job to the people who ask: `launch status` and `launch top` show it.

#ifndef LOCKSTEP_LAUNCH_STATUS_JOB_STATUS_H_
#define LOCKSTEP_LAUNCH_STATUS_JOB_STATUS_H_

#include <stdint.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::launch {

// One rank of the launcher's node.
struct RankStatus {
  enum class State {
    kStarting,  // its process does not run the program yet
    kRunning,
    kWaiting,  // it has kept its state, and waits until the job goes on
    kEnded,
  };

  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;  // 0: there is no process yet
  State state = State::kStarting;
  int exit_code = -1;       // of a rank that has ended; -1 if a signal ended it
  int signal = 0;           // 0 if it exited
  absl::Duration in_state;  // for how long
  std::optional<int64_t> step;
  std::optional<absl::Duration> since_step;  // how long ago that was
  std::optional<double> steps_per_second;    // in the last 10 s
};

// One node of the generation. Its node rank is its index.
struct HostStatus {
  enum class State {
    kMember,
    kLeaving,  // somebody has asked it to leave
    kLeft,
    kLost,
  };

  std::string host;
  std::string address;  // at which the other nodes reach it; "" if they do not tell
  int first_rank = 0;   // the lowest; -1: they are not neighbours, as after one has failed and come back
  int ranks = 1;
  State state = State::kMember;
};

inline bool TakesPart(const HostStatus& host) {
  return host.state == HostStatus::State::kMember || host.state == HostStatus::State::kLeaving;
}

struct JobStatus {
  enum class Phase {
    kForming,  // the job waits for nodes
    kRunning,  // ranks are started, or run
    kEnding,   // ranks are being ended
    kPausing,  // ranks have failed, and start again after a pause
    kSpare,    // other nodes run the ranks, and this one waits
  };

  std::string job_id;  // --rdzv_id
  std::string host;    // of the launcher
  pid_t pid = 0;       // of the launcher, as users know it
  std::string program;
  absl::Time started;
  absl::Duration running;     // since then
  absl::Duration grace;       // what ranks have between SIGTERM and SIGKILL
  bool meets_others = false;  // the nodes of the job tell each other what happens
  int min_nodes = 1, max_nodes = 1;
  Phase phase = Phase::kForming;
  absl::Duration in_phase;
  std::optional<int> ready;  // while it forms: the number of hosts that are there, if this launcher knows
  std::string trouble;       // that this launcher and the others do not see each other; "" if they do
  std::string stall;         // why ranks wait for long; "" if none says so
  int64_t generation = 0;    // the number of starts so far
  int restarts = 0;          // of them, those after a failure
  int max_restarts = 0;
  std::vector<HostStatus> hosts;  // of that generation
  std::vector<RankStatus> ranks;  // of the launcher's node, by local rank
};

// In the order of the enumerations.
inline constexpr absl::string_view kPhaseNames[] = {"forming", "running", "ending", "pausing", "spare"};
inline constexpr absl::string_view kRankStateNames[] = {"starting", "running", "waiting", "ended"};
inline constexpr absl::string_view kHostStateNames[] = {"member", "leaving", "left", "lost"};

inline absl::string_view NameOf(JobStatus::Phase phase) { return kPhaseNames[static_cast<int>(phase)]; }
inline absl::string_view NameOf(RankStatus::State state) { return kRankStateNames[static_cast<int>(state)]; }
inline absl::string_view NameOf(HostStatus::State state) { return kHostStateNames[static_cast<int>(state)]; }

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_STATUS_JOB_STATUS_H_
