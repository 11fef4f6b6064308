#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_CONNECTION_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_CONNECTION_H_

#include <string>
#include <vector>

#include "lockstep/comm/watch/internal/frame.h"

namespace lockstep::comm::internal {

// Frames over a non-blocking stream socket, which it owns. Nothing blocks; a peer that is gone raises no SIGPIPE. Not
// thread-safe.
class Connection {
 public:
  explicit Connection(int fd, size_t max_text = kMaxFrameText);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }
  void set_max_text(size_t max_text) { reader_.set_max_text(max_text); }

  // Writes what the socket takes now; the rest goes with a later Send() or Flush(), to be called when the socket is
  // writable.
  void Send(const Frame& frame);
  void Flush();

  // Sends nothing more than what Send() was given: the other side then sees the end of the stream.
  void FinishSending();
  bool sent_all() const { return unsent_.empty(); }

  // The frames that have arrived, to be called when the socket is readable. Those that came before the connection ended
  // or broke are returned too.
  std::vector<Frame> Receive();

  // Whether the other side has ended the connection or sent what is no frame, and how, such as "its connection closed".
  bool ended() const { return !end_.empty(); }
  const std::string& end() const { return end_; }

 private:
  void TakeFrames(std::vector<Frame>& frames);

  const int fd_;
  FrameReader reader_;
  std::string unsent_;
  bool finishing_ = false;
  std::string end_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_CONNECTION_H_
