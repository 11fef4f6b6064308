// The processes of a node's ranks and all that these have started: in which order they end, and how all of them are
// ended.

#ifndef LOCKSTEP_LAUNCH_NODE_RANK_PROCESSES_H_
#define LOCKSTEP_LAUNCH_NODE_RANK_PROCESSES_H_

#include <poll.h>
#include <stdint.h>
#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/job/launch_options.h"
#include "lockstep/launch/process/process.h"

namespace lockstep::launch {

class RankProcesses {
 public:
  // The last process of a slot (a local rank). It is not reaped before EndGroup() or Reap(): until then, the number of
  // its process group cannot be another one's.
  struct Rank {
    Process process;
    UniqueFd report;
    int64_t started_ns = 0;
    int attempt = 0;    // the number of its start, from 0, in file names and events
    bool gone = false;  // its group has been killed, and its pid may be another process's
  };

  explicit RankProcesses(const LaunchOptions& options) : options_(options) {}

  // Call it first. ResourceExhausted: no descriptor is free.
  absl::Status Open();
  // The first process of the next slot, or the next one of a slot, after EndGroup(). ResourceExhausted: its end could
  // not be noticed, so it was killed.
  absl::Status Add(int slot, Rank rank);
  // Before another process takes the slot of one that has ended: kills what that one has left in its group, and reaps
  // it.
  void EndGroup(int slot);

  int size() const { return static_cast<int>(ranks_.size()); }
  const Rank& operator[](int slot) const { return ranks_[slot]; }

  // Appends to `fds` what becomes readable when a rank, or what AreGone() waits for, has ended.
  void AppendTo(std::vector<pollfd>* fds) const;
  // The slots whose processes have ended since the last call, in the order in which they did.
  std::vector<int> TakeEnds();

  // Signals the ranks' groups.
  void Signal(int signal) const;
  // Signals the ranks' groups, and all processes that have left the groups: at once, or when their parent has ended
  // (SignalOrphans()).
  void SignalAll(int signal);
  void SignalOrphans();
  // Kills all, also what starts from now on, whenever AreGone() is called.
  void Kill();
  // The pids of ranks that are stopped, and of what they have started in their groups.
  std::vector<pid_t> Stopped() const;
  // Once all ranks have ended: whether nothing else runs that they have started. Else AppendTo() waits for that.
  bool AreGone();
  bool waits() const { return !strays_.empty(); }
  // Names the processes outside of the groups that SIGKILL did not end; "" if there is none.
  std::string NotEnded() const;
  void Reap();

 private:
  std::vector<pid_t> Groups() const;

  const LaunchOptions& options_;
  std::vector<Rank> ranks_;       // by slot
  UniqueFd ends_;                 // an epoll of their pidfds, which says in which order they ended
  std::vector<UniqueFd> strays_;  // processes that the ranks started and left behind
  int end_signal_ = 0;            // that tells ranks and strays to end
  std::set<pid_t> told_;          // the strays outside of the groups that got it
  bool killing_ = false;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_RANK_PROCESSES_H_
