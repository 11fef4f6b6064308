#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_SPOKE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_SPOKE_H_

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/comm/watch/internal/connection.h"
#include "lockstep/comm/watch/internal/endpoint.h"
#include "lockstep/comm/watch/internal/participant.h"
#include "lockstep/comm/watch/internal/process_handle.h"
#include "lockstep/comm/watch/internal/wake.h"

namespace lockstep::comm::internal {

// A connection to the hub that every rank has joined by now, with what the hub has said so far.
struct Joined {
  std::unique_ptr<Connection> connection;
  std::vector<Frame> frames;
};

// Connects and says hello, and again when the hub, flooded with strangers, dropped us; blocks until every rank has
// joined. The group's first cause if it fails before that, Unavailable if rank 0 is gone, DeadlineExceeded,
// PermissionDenied if what listens there does not know the token.
absl::StatusOr<Joined> JoinHub(const Endpoint& endpoint, int rank, const ProcessHandle& hub, absl::Time deadline);

// Another rank's connection to rank 0, on a thread of its own.
class Spoke {
 public:
  // `participant` is borrowed, and gets the hub's frames on the spoke's thread.
  Spoke(Joined joined, ProcessHandle hub, Participant* participant);
  ~Spoke();

  // Starts the thread; once. ResourceExhausted if there is no descriptor or no thread for it.
  absl::Status Start();

  // Any thread; does not block.
  void Send(const Frame& frame);

  // Says farewell, for 150 ms at most, and ends the thread.
  void Leave(const Frame& farewell);

 private:
  void Run();
  std::vector<Frame> Receive();
  Clock::time_point TickLost(Clock::time_point now);
  void Disconnect();

  const ProcessHandle hub_;
  Participant* const participant_;
  Waker waker_;
  std::vector<Frame> first_frames_;  // the thread's

  // Once the connection has ended: how, and when its end is told with or without the process's fate. The thread's.
  std::string lost_;
  Clock::time_point lost_due_;

  std::mutex mutex_;  // guards what follows
  std::unique_ptr<Connection> connection_;
  bool leaving_ = false;
  Clock::time_point leaving_due_;

  std::thread thread_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_SPOKE_H_
