#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_CONNECTION_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_CONNECTION_H_

#include <string>
#include <vector>

#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/comm/watch/internal/frame.h"

namespace lockstep::comm::internal {

// Frames over a non-blocking stream socket. Nothing blocks; a peer that is gone raises no SIGPIPE. Not
// thread-safe.
class Connection {
 public:
  explicit Connection(UniqueFd fd, size_t max_text = kMaxFrameText);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_.get(); }
  void set_max_text(size_t max_text) { reader_.set_max_text(max_text); }

  // Writes as much as the socket accepts now. The rest is written by a later Send(), or by Flush() when the socket is
  // writable.
  void Send(const Frame& frame);
  void Flush();

  // Sends nothing more than what Send() was given: the other side then sees the end of the stream.
  void FinishSending();
  bool sent_all() const { return unsent_.empty(); }

  // Returns the frames that have arrived. Call it when the socket is readable. Frames from before the end of the
  // connection are returned too.
  std::vector<Frame> Receive();

  // ended() returns whether the other side has closed the connection or sent an invalid frame. end() says how it ended,
  // such as "its connection closed".
  bool ended() const { return !end_.empty(); }
  const std::string& end() const { return end_; }

 private:
  void TakeFrames(std::vector<Frame>& frames);

  const UniqueFd fd_;
  FrameReader reader_;
  std::string unsent_;
  bool finishing_ = false;
  std::string end_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_CONNECTION_H_
