#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_SPOKE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_SPOKE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/event.h"
#include "lockstep/comm/watch/internal/connection.h"
#include "lockstep/comm/watch/internal/endpoint.h"
#include "lockstep/comm/watch/internal/participant.h"
#include "lockstep/comm/watch/internal/process_handle.h"

namespace lockstep::comm::internal {

// A connection to the hub after every rank has joined, with the hub's frames so far.
struct Joined {
  std::unique_ptr<Connection> connection;
  std::vector<Frame> frames;
};

// Connects and says hello. Repeats this if the hub, flooded with strangers, closed the connection. Blocks until every
// rank has joined. Returns the group's first cause if it fails before that. Unavailable: the hub has died.
// DeadlineExceeded. PermissionDenied: the listener does not know the token. Or the first error of `interruption`, which
// may be null.
absl::StatusOr<Joined> JoinHub(const Endpoint& endpoint, int rank, const ProcessHandle& hub, absl::Time deadline,
                               const std::function<absl::Status()>& interruption);

// The connection of another rank to the hub, on a separate thread.
class Spoke {
 public:
  // `participant` is borrowed, and gets the hub's frames on the spoke's thread.
  Spoke(Joined joined, ProcessHandle hub, Participant* participant);
  ~Spoke();

  // Starts the thread. Call it once. ResourceExhausted: no descriptor or thread is available.
  absl::Status Start();

  // Any thread; does not block.
  void Send(const Frame& frame);

  // Says farewell, in at most 150 ms, and ends the thread.
  void Leave(const Frame& farewell);

 private:
  void Run();
  std::vector<Frame> Receive();
  Clock::time_point TickLost(Clock::time_point now);
  void Disconnect();

  const ProcessHandle hub_;
  Participant* const participant_;
  Event wake_;
  std::vector<Frame> first_frames_;  // the thread's

  // Used by the thread only. Once the connection has ended: how it ended, and when this is reported with or without the
  // fate of the process.
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
