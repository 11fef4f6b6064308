#include "lockstep/comm/watch/internal/connection.h"

#include <string.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::comm::internal {
namespace {

// A process that dies with unread bytes resets its connections instead of closing them. Both mean an end.
std::string DescribeEnd(ssize_t received, int error) {
  if (received == 0 || error == ECONNRESET || error == EPIPE) return "its connection closed";
  return absl::StrCat("its connection broke (", strerror(error), ")");
}

}  // namespace

Connection::Connection(UniqueFd fd, size_t max_text) : fd_(std::move(fd)), reader_(max_text) {}

void Connection::Send(const Frame& frame) {
  unsent_ += Encode(frame);
  Flush();
}

void Connection::Flush() {
  while (!unsent_.empty()) {
    const ssize_t sent = send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // Receive() reports a broken connection, since the last frames of the other side must still be read.
    sent < 0 ? unsent_.clear() : static_cast<void>(unsent_.erase(0, sent));
  }
  if (finishing_) shutdown(fd_.get(), SHUT_WR);
}

void Connection::FinishSending() {
  finishing_ = true;
  Flush();
}

void Connection::TakeFrames(std::vector<Frame>& frames) {
  while (true) {
    auto frame = reader_.Next();
    if (!frame.ok()) {
      end_ = absl::StrCat("it sent ", frame.status().message());
      return;
    }
    if (!frame->has_value()) return;
    frames.push_back(std::move(**frame));
  }
}

std::vector<Frame> Connection::Receive() {
  std::vector<Frame> frames;
  char bytes[4096];
  while (!ended()) {
    const ssize_t received = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (received <= 0) {
      end_ = DescribeEnd(received, errno);
      break;
    }
    reader_.Append(bytes, received);
    TakeFrames(frames);
  }
  return frames;
}

}  // namespace lockstep::comm::internal
