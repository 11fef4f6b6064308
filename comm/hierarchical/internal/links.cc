#include "lockstep/comm/hierarchical/internal/links.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/hierarchical/internal/meeting.h"
#include "lockstep/comm/internal/silent_hosts.h"
#include "lockstep/comm/shm/dtype.h"

namespace lockstep::comm::hierarchical::internal {
namespace {

using Clock = std::chrono::steady_clock;

// The other hosts may reach both of two hosts that do not reach each other, so the watch would not find that. It is
// longer than the watch needs for a host that vanished: see MillisecondsWithoutAnswer().
constexpr int kMostSilenceMs = 25'000;

// The header and the data that are still to be moved, for one system call.
class Rest {
 public:
  Rest(void* header, size_t header_bytes, void* data, size_t data_bytes)
      : parts_{{header, header_bytes}, {data, data_bytes}} {}

  bool empty() const { return parts_[0].iov_len + parts_[1].iov_len == 0; }
  msghdr Message() {
    msghdr message = {};
    message.msg_iov = parts_;
    message.msg_iovlen = 2;
    return message;
  }
  void Moved(size_t bytes) {
    for (iovec& part : parts_) {
      const size_t here = std::min(bytes, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + here;
      part.iov_len -= here;
      bytes -= here;
    }
  }

 private:
  iovec parts_[2];
};

const char* NameOf(PieceHeader::Kind kind) {
  switch (kind) {
    case PieceHeader::Kind::kAllReduce:
      return "all_reduce";
    case PieceHeader::Kind::kTreeScatter:
      return "tree_scatter";
    case PieceHeader::Kind::kAllGather:
      return "all_gather";
  }
  return "a call";  // the bytes of a header come from another rank
}

// By Wait(), or by AskForAnswers().
bool IsSilence(int error) { return error == EHOSTUNREACH || error == ETIMEDOUT; }

}  // namespace

std::string Describe(const PieceHeader& header) {
  const auto kind = static_cast<PieceHeader::Kind>(header.kind);
  std::string text =
      absl::StrCat("piece ", header.piece, " of ", NameOf(kind), " #", header.call, " (", header.bytes, " bytes; ",
                   shm::NameOf(static_cast<shm::DType>(header.dtype)), " [", header.elements, "]");
  if (kind != PieceHeader::Kind::kAllGather) absl::StrAppend(&text, ", ", shm::NameOf(static_cast<shm::Op>(header.op)));
  return absl::StrCat(text, ")");
}

absl::StatusOr<std::unique_ptr<Links>> Links::Create(const LinksOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(Event wake, Event::Create("eventfd"));
  std::unique_ptr<Links> links(new Links(options, std::move(wake)));
  LOCKSTEP_ASSIGN_OR_RETURN(links->fds_, Meet(options));
  return links;
}

Links::Links(const LinksOptions& options, Event wake)
    : rank_(options.rank), size_(options.size), lanes_(options.lanes), names_(options.names), wake_(std::move(wake)) {}

void Links::Abort() {
  aborted_ = true;
  wake_.Set();
}

absl::Status Links::Broken(const char* doing, int peer, int error) const {
  return absl::UnavailableError(absl::StrCat("rank ", names_[rank_], ": ", doing, " rank ", names_[peer], ": ",
                                             error == 0 ? "the connection was closed"
                                             : IsSilence(error)
                                                 ? absl::StrCat("its host ", comm::internal::kDoesNotAnswer)
                                                 : strerror(error)));
}

absl::Status Links::Wait(int fd, short events, Clock::time_point deadline, const char* doing, int peer) {
  while (true) {
    if (aborted_) return absl::AbortedError("the group was aborted");
    const auto now = Clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", names_[rank_], ": ", doing, " rank ", names_[peer], " timed out"));
    }
    pollfd polled[] = {{fd, events, 0}, {wake_.fd(), POLLIN, 0}};
    const int ready = poll(polled, 2, PollTimeout(std::min(deadline, now + std::chrono::seconds(1))));
    if (ready < 0 && errno != EINTR) return Broken(doing, peer, errno);
    if (ready > 0 && polled[0].revents != 0) return absl::OkStatus();
    if (ready == 0 && MillisecondsWithoutAnswer(fd) >= kMostSilenceMs) return Broken(doing, peer, EHOSTUNREACH);
  }
}

absl::Status Links::Send(int peer, int lane, const PieceHeader& header, const void* data,
                         std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  PieceHeader copy = header;
  Rest rest(&copy, sizeof(copy), const_cast<void*>(data), header.bytes);
  const int fd = Fd(peer, lane);
  while (!rest.empty()) {
    if (aborted_) return absl::AbortedError("the group was aborted");
    const msghdr message = rest.Message();
    const ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      rest.Moved(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      LOCKSTEP_RETURN_IF_ERROR(Wait(fd, POLLOUT, deadline, "sending to", peer));
    } else if (errno != EINTR) {
      return Broken("sending to", peer, errno);
    }
  }
  return absl::OkStatus();
}

absl::Status Links::Receive(int peer, int lane, const PieceHeader& header, void* data,
                            std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  PieceHeader found;
  Rest rest(&found, sizeof(found), data, header.bytes);
  const int fd = Fd(peer, lane);
  size_t arrived = 0;
  while (!rest.empty()) {
    if (aborted_) return absl::AbortedError("the group was aborted");
    msghdr message = rest.Message();
    const ssize_t received = recvmsg(fd, &message, MSG_DONTWAIT);
    if (received > 0) {
      rest.Moved(received);
      arrived += received;
      if (arrived >= sizeof(found) && !(found == header)) {
        return absl::InvalidArgumentError(absl::StrCat("rank ", names_[rank_], ": rank ", names_[peer], " sent ",
                                                       Describe(found), "; expected ", Describe(header)));
      }
    } else if (received == 0) {
      return Broken("receiving from", peer, 0);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      LOCKSTEP_RETURN_IF_ERROR(Wait(fd, POLLIN, deadline, "receiving from", peer));
    } else if (errno != EINTR) {
      return Broken("receiving from", peer, errno);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::comm::hierarchical::internal
