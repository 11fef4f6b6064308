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
#include "lockstep/base/posix/event.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/environment/rank_identity.h"
#include "lockstep/comm/watch/internal/arbiter.h"
#include "lockstep/comm/watch/internal/connection.h"
#include "lockstep/comm/watch/internal/participant.h"
#include "lockstep/comm/watch/internal/process_handle.h"

namespace lockstep::comm::internal {

struct HubOptions {
  std::vector<RankIdentity> ranks;
  int rank = 0;              // the hub's
  bool on_one_host = false;  // all ranks, so that their connections are Unix sockets
  std::string token;         // proves that a connection is a rank's
  Clock::time_point joining_deadline;
};

// The hub's connections to all other ranks, and the arbiter that receives their frames, on a separate thread.
//
// Before the group is complete, anyone may connect. A connection is closed if it has not proved within 5 s that it
// knows the token, or if it sends anything else. If there are too many connections, or the process is out of
// descriptors, the oldest unproved one is closed. Once the group is complete, nothing listens. If the process is out of
// descriptors and has no unproved connection to close, the hub ends the group, and keeps one descriptor to report that
// to the ranks that have not come yet.
class Hub {
 public:
  // `listener` is invalid in a group of one rank. `participant` is the hub's, borrowed; it gets its frames on the hub's
  // thread.
  Hub(HubOptions options, UniqueFd listener, Participant* participant);
  ~Hub();

  // Starts the thread. Call it once, before any Send(). ResourceExhausted: no descriptor or thread is available.
  absl::Status Start();

  // A frame of the hub's own. Any thread; does not block.
  void Send(const Frame& frame);

  // For a group that failed while it was created: blocks until the missing ranks have come and been told the cause, or
  // for `patience`.
  void AwaitLatecomers(Clock::duration patience);

  // Sends the hub's farewell to all others, in at most 150 ms, and ends the thread.
  void Leave(const Frame& farewell);

 private:
  struct Peer {
    Peer(UniqueFd fd, size_t max_text, std::string challenge, Clock::time_point since)
        : connection(std::move(fd), max_text), challenge(std::move(challenge)), since(since) {}
    Connection connection;
    const std::string challenge;
    const Clock::time_point since;
    int rank = -1;  // a stranger's
  };

  void Run();
  void Watch(int fd, uint64_t id);
  void Handle(uint64_t id, Clock::time_point now);
  void Accept(Clock::time_point now);
  UniqueFd AcceptOne(Clock::time_point now);
  void RunOutOfDescriptors(int error);
  void CloseListener();
  bool Admit(Peer& peer, const Frame& hello);
  Clock::time_point TickStrangers(Clock::time_point now);  // returns when to do it next
  bool Done(Clock::time_point now) const;

  const HubOptions options_;
  Participant* const participant_;
  UniqueFd epoll_;
  Event wake_;

  std::mutex mutex_;                      // guards what follows
  std::vector<ProcessHandle> processes_;  // by rank
  Arbiter arbiter_;
  UniqueFd listener_;
  UniqueFd spare_;                  // closed when the process has run out of descriptors
  Clock::time_point accept_again_;  // after that
  uint64_t next_id_;
  std::map<uint64_t, std::unique_ptr<Peer>> peers_;  // by the number that epoll gives back
  std::vector<Peer*> by_rank_;
  std::deque<uint64_t> strangers_;  // in order of arrival; includes peers that have proved themselves since
  std::vector<Frame> to_own_rank_;  // delivered by the thread
  absl::Status trouble_;            // the hub's own; the thread sends it to the others
  bool leaving_ = false;
  Clock::time_point leaving_due_;

  std::thread thread_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_HUB_H_
