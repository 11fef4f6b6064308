#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_HUB_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_HUB_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/watch/internal/arbiter.h"
#include "lockstep/comm/watch/internal/connection.h"
#include "lockstep/comm/watch/internal/participant.h"
#include "lockstep/comm/watch/internal/process_handle.h"
#include "lockstep/comm/watch/internal/wake.h"
#include "lockstep/comm/watch/rank_identity.h"

namespace lockstep::comm::internal {

struct HubOptions {
  std::vector<RankIdentity> ranks;
  int listener = -1;  // owned by the hub from then on; -1 where there is nobody to come
  std::string token;  // what a rank must know
  Clock::time_point joining_deadline;
};

// Rank 0's connections to all others, on a thread of its own, with the arbiter that hears them.
//
// Anybody may connect before the group is complete. A connection that has not proved within 5 s that it knows the token
// is dropped, as is one that sends anything else, and the oldest when there are too many or the process is out of
// descriptors; afterwards nobody listens. Out of descriptors without a stranger to drop, rank 0 ends the group, and
// keeps one descriptor to tell the ranks that are still to come.
class Hub {
 public:
  // `participant` is rank 0's, borrowed; it gets its frames on the hub's thread.
  Hub(HubOptions options, Participant* participant);
  ~Hub();

  // Starts the thread; once, and before any frame is given to Send(). ResourceExhausted if there is no descriptor or no
  // thread for it.
  absl::Status Start();

  // A frame of rank 0's own. Any thread; does not block.
  void Send(const Frame& frame);

  // For a group that failed while it was made: blocks until the ranks that are still to come have come, and so been
  // told of the cause, or for `patience`.
  void AwaitLatecomers(Clock::duration patience);

  // Tells all others of rank 0's farewell, for 150 ms at most, and ends the thread.
  void Leave(const Frame& farewell);

 private:
  struct Peer {
    Peer(int fd, size_t max_text, std::string challenge, Clock::time_point since)
        : connection(fd, max_text), challenge(std::move(challenge)), since(since) {}
    Connection connection;
    const std::string challenge;
    const Clock::time_point since;
    int rank = -1;  // a stranger's
  };

  void Run();
  void Watch(int fd, uint64_t id);
  void Handle(uint64_t id, Clock::time_point now);
  void Accept(Clock::time_point now);
  int AcceptOne(Clock::time_point now);
  void RunOutOfDescriptors(int error);
  void CloseListener();
  bool Admit(Peer& peer, const Frame& hello);
  Clock::time_point TickStrangers(Clock::time_point now);  // returns when to do it next
  bool Done(Clock::time_point now) const;

  const HubOptions options_;
  Participant* const participant_;
  const std::vector<ProcessHandle> processes_;  // by rank
  int epoll_ = -1;
  Waker waker_;

  std::mutex mutex_;  // guards what follows
  Arbiter arbiter_;
  int listener_;
  int spare_ = -1;                  // closed when the process has run out of descriptors
  Clock::time_point accept_again_;  // after that
  uint64_t next_id_;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;  // by the number that epoll gives back
  std::vector<Peer*> by_rank_;
  std::deque<uint64_t> strangers_;  // in the order in which they came; those that are known by now among them
  std::vector<Frame> to_rank0_;     // delivered by the thread
  absl::Status trouble_;            // rank 0's, which the thread tells the others
  bool leaving_ = false;
  Clock::time_point leaving_due_;

  std::thread thread_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_HUB_H_
