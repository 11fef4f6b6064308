#include "lockstep/tools/launch/agent_link/internal/link_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lockstep::launch::internal {
namespace {

// Reads the words of a text. What is left after them may be any text.
class Words {
 public:
  explicit Words(absl::string_view text) : rest_(text) {}

  std::string Word() {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(rest_, absl::MaxSplits(' ', 1));
    rest_ = parts.second;
    return std::string(parts.first);
  }

  template <typename Integer>
  void Number(Integer* value) {
    ok_ &= absl::SimpleAtoi(Word(), value);
  }

  void Duration(absl::Duration* value) {
    int64_t nanoseconds = 0;
    Number(&nanoseconds);
    *value = absl::Nanoseconds(nanoseconds);
  }

  std::string Rest() const { return std::string(rest_); }
  bool ok() const { return ok_; }

 private:
  absl::string_view rest_;
  bool ok_ = true;
};

absl::Status NotOurs(absl::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a message of a control socket: \"", absl::CHexEscape(text.substr(0, 64)), "\""));
}

absl::string_view Name(LauncherMessage::Kind kind) {
  switch (kind) {
    case LauncherMessage::Kind::kGeneration:
      return "generation";
    case LauncherMessage::Kind::kRegroupAfterStep:
      return "after_step";
    case LauncherMessage::Kind::kRegroupNow:
      return "now";
  }
  return "";
}

}  // namespace

std::string Encode(const RankMessage& message) {
  if (message.kind == RankMessage::Kind::kProgress) return absl::StrCat("progress ", message.step);
  if (message.kind == RankMessage::Kind::kStays) return "stays";
  if (message.kind == RankMessage::Kind::kFinished) return message.all ? "finished all" : "finished";
  const JoinOptions& join = message.join;
  if (message.kind == RankMessage::Kind::kStalls) {
    return absl::StrCat("stalls ", message.step, " ", join.reason).substr(0, kMostLinkBytes);
  }
  if (message.kind == RankMessage::Kind::kEndsJob)
    return absl::StrCat("ends_job ", join.reason).substr(0, kMostLinkBytes);
  return absl::StrCat("ready ", message.left, " ", join.min_ranks, " ", join.max_ranks, " ", join.max_restarts, " ",
                      absl::ToInt64Nanoseconds(join.leave_timeout), " ", join.reason)
      .substr(0, kMostLinkBytes);
}

std::string Encode(const LauncherMessage& message) {
  const RankGeneration& g = message.generation;
  if (message.kind != LauncherMessage::Kind::kGeneration) {
    return absl::StrCat(Name(message.kind), " ", g.number, " ", g.reason).substr(0, kMostLinkBytes);
  }
  return absl::StrCat(Name(message.kind), " ", g.number, " ", g.rank, " ", g.world_size, " ", g.local_rank, " ",
                      g.local_world_size, " ", g.node_rank, " ", g.nnodes, " ", g.master_addr, " ", g.master_port, " ",
                      g.reason)
      .substr(0, kMostLinkBytes);
}

absl::StatusOr<RankMessage> DecodeRankMessage(absl::string_view text) {
  Words words(text);
  RankMessage message;
  const std::string kind = words.Word();
  if (kind == "progress") {
    message.kind = RankMessage::Kind::kProgress;
    words.Number(&message.step);
  } else if (kind == "stalls") {
    message.kind = RankMessage::Kind::kStalls;
    words.Number(&message.step);
    message.join.reason = words.Rest();
  } else if (kind == "stays") {
    message.kind = RankMessage::Kind::kStays;
  } else if (kind == "finished") {
    message.kind = RankMessage::Kind::kFinished;
    message.all = words.Rest() == "all";
  } else if (kind == "ends_job") {
    message.kind = RankMessage::Kind::kEndsJob;
    message.join.reason = words.Rest();
  } else if (kind == "ready") {
    words.Number(&message.left);
    words.Number(&message.join.min_ranks);
    words.Number(&message.join.max_ranks);
    words.Number(&message.join.max_restarts);
    words.Duration(&message.join.leave_timeout);
    message.join.reason = words.Rest();
  } else {
    return NotOurs(text);
  }
  if (!words.ok()) return NotOurs(text);
  return message;
}

absl::StatusOr<LauncherMessage> DecodeLauncherMessage(absl::string_view text) {
  Words words(text);
  LauncherMessage message;
  const std::string kind = words.Word();
  RankGeneration& g = message.generation;
  words.Number(&g.number);
  if (kind == "generation") {
    words.Number(&g.rank);
    words.Number(&g.world_size);
    words.Number(&g.local_rank);
    words.Number(&g.local_world_size);
    words.Number(&g.node_rank);
    words.Number(&g.nnodes);
    g.master_addr = words.Word();
    words.Number(&g.master_port);
  } else if (kind == "after_step") {
    message.kind = LauncherMessage::Kind::kRegroupAfterStep;
  } else if (kind == "now") {
    message.kind = LauncherMessage::Kind::kRegroupNow;
  } else {
    return NotOurs(text);
  }
  if (!words.ok()) return NotOurs(text);
  g.reason = words.Rest();
  return message;
}

absl::Status SendPacket(int socket, absl::string_view text, int passed) {
  iovec part = {const_cast<char*>(text.data()), text.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* const message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = SOL_SOCKET;
    message->cmsg_type = SCM_RIGHTS;
    message->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(message), &passed, sizeof(int));
  }
  ssize_t n;
  do {
    n = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return absl::OkStatus();
  if (errno == EAGAIN || errno == ENOBUFS) {
    return absl::ResourceExhaustedError("the other end of a control socket does not read");
  }
  return absl::UnavailableError(absl::StrCat("a control socket: ", strerror(errno)));
}

absl::StatusOr<Packet> ReceivePacket(int socket) {
  Packet packet;
  packet.text.resize(kMostLinkBytes);
  iovec part = {packet.text.data(), packet.text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t n;
  // ECONNRESET comes once, before packets that wait, if the other end was closed with packets that it had not read.
  do {
    n = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0 && errno == EAGAIN) return Packet();
  if (n < 0) return absl::UnavailableError(absl::StrCat("a control socket: ", strerror(errno)));
  const cmsghdr* const message = CMSG_FIRSTHDR(&header);
  if (message && message->cmsg_type == SCM_RIGHTS && message->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd;
    memcpy(&fd, CMSG_DATA(message), sizeof(int));
    packet.passed = UniqueFd(fd);
  }
  if (n == 0) return absl::UnavailableError("the other end of a control socket is closed");
  packet.text.resize(static_cast<size_t>(n));
  return packet;
}

}  // namespace lockstep::launch::internal
