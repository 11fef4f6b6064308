// The lines in which the launcher of a node says what it waits for: other nodes, its turn as a spare, an answer. A long
// wait gets ever fewer of them. Pure: all times are of one clock that never goes back.

#ifndef LOCKSTEP_LAUNCH_NODE_WAIT_LINES_H_
#define LOCKSTEP_LAUNCH_NODE_WAIT_LINES_H_

#include <stdint.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lockstep/launch/job/job.h"
#include "lockstep/launch/rendezvous/rendezvous.h"

namespace lockstep::launch {

// Each function returns a line without its end, or "" if there is nothing to say.
class WaitLines {
 public:
  enum class Wait {
    kNone,
    kForming,  // the job forms
    kSpare,    // the job runs without this node
  };

  // `where` is the rendezvous. The job may form until `join_timeout` is over, and forms since `now_ns`.
  WaitLines(std::string where, absl::Duration join_timeout, int64_t now_ns);

  // The job is seen, at first or after a change. It has `members` nodes, and `limits` are the ones that this node
  // knows.
  void OnJob(Wait wait, const NodeLimits& limits, int members, int64_t now_ns);

  // The rendezvous answers, or does not. One line when ranks must not run because nobody answers, and one when somebody
  // does again. `has_ranks`: ranks of this node run now.
  std::string OnReach(const Rendezvous::Reach& reach, bool has_ranks, int64_t now_ns);

  // Returns whether time alone may bring a line.
  bool waits() const {
    return wait_ == Wait::kForming || (wait_ == Wait::kSpare && !said_spare_) || !away_from_.empty();
  }

  // The line that is due at `now_ns`. `ready` is the number of nodes that are there, which only the leader knows.
  std::string Take(const Rendezvous::Reach& reach, std::optional<int> ready, int64_t now_ns);

 private:
  std::string TakeForming(std::optional<int> ready, int64_t now_ns);
  std::string TakeSilence(const Rendezvous::Reach& reach, int64_t now_ns);
  std::string TakeSpare(int64_t now_ns);
  bool IsDue(int64_t since_ns, absl::Duration first, int64_t now_ns) const;

  const std::string where_;
  const absl::Duration join_timeout_;
  Wait wait_ = Wait::kForming;
  NodeLimits limits_;
  int members_ = 0;
  int64_t since_ns_;                // when wait_ began
  std::optional<int64_t> said_ns_;  // when the last line about a wait came
  std::optional<int> said_ready_;   // the number of nodes in the last line about that
  bool said_spare_ = false;
  std::string away_from_;  // who does not answer, while this node is out of reach
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_NODE_WAIT_LINES_H_
