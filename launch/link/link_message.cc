#include "lockstep/launch/link/link_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lockstep::launch {
namespace {

// So that two sentences and all else have room in a packet.
constexpr size_t kMostSentenceBytes = 3000;
// A message has room for so many.
constexpr size_t kMostHosts = 16;

// Writes the fields of a message to a text, or reads them from one, in the order of the calls. A text field has its
// length before it.
class Fields {
 public:
  Fields() : writes_(true) {}
  explicit Fields(absl::string_view text) : writes_(false), rest_(text) {}

  template <typename Integer>
  void Number(Integer* value) {
    if (writes_) {
      absl::StrAppend(&text_, static_cast<int64_t>(*value), " ");
      return;
    }
    const size_t end = rest_.find(' ');
    int64_t number = 0;
    ok_ = ok_ && end != absl::string_view::npos && absl::SimpleAtoi(rest_.substr(0, end), &number);
    ok_ = ok_ && static_cast<int64_t>(static_cast<Integer>(number)) == number;
    if (!ok_) return;
    rest_.remove_prefix(end + 1);
    *value = static_cast<Integer>(number);
  }

  void Text(std::string* text, size_t most = std::string::npos) {
    size_t size = std::min(text->size(), most);
    Number(&size);
    if (writes_) {
      text_.append(*text, 0, size);
      return;
    }
    ok_ = ok_ && size <= rest_.size();
    if (!ok_) return;
    *text = std::string(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }

  void Sentence(std::string* text) { Text(text, kMostSentenceBytes); }

  void Duration(absl::Duration* duration) {
    int64_t nanoseconds = absl::ToInt64Nanoseconds(*duration);
    Number(&nanoseconds);
    if (!writes_) *duration = absl::Nanoseconds(nanoseconds);
  }

  void Texts(std::vector<std::string>* texts, size_t most) {
    size_t size = std::min(texts->size(), most);
    Number(&size);
    if (!writes_) texts->resize(std::min(size, most));
    ok_ = ok_ && size <= most;
    for (size_t i = 0; i < size && ok_; ++i) Text(&(*texts)[i]);
  }

  template <typename Enum>
  void Kind(Enum* kind, Enum last) {
    Number(kind);
    ok_ = ok_ && static_cast<int>(*kind) >= 0 && *kind <= last;
  }

  const std::string& text() const { return text_; }
  // Returns whether the text was the one that these calls write.
  bool is_read() const { return ok_ && rest_.empty(); }

 private:
  const bool writes_;
  std::string text_;
  absl::string_view rest_;
  bool ok_ = true;
};

void Describe(std::optional<StepFailure>* failure, Fields* fields) {
  bool is_there = failure->has_value();
  fields->Number(&is_there);
  if (!is_there) return;
  if (!*failure) failure->emplace();
  fields->Number(&(*failure)->step);
  fields->Number(&(*failure)->rank);
  fields->Sentence(&(*failure)->cause);
}

void Describe(JoinOptions* join, Fields* fields) {
  fields->Number(&join->min_ranks);
  fields->Number(&join->max_ranks);
  fields->Number(&join->max_restarts);
  fields->Duration(&join->leave_timeout);
  fields->Sentence(&join->reason);
  Describe(&join->failure, fields);
  fields->Texts(&join->silent_hosts, kMostHosts);
}

void Describe(RankMessage* message, Fields* fields) {
  fields->Kind(&message->kind, RankMessage::Kind::kEndsJob);
  fields->Number(&message->left);
  fields->Number(&message->step);
  fields->Number(&message->all);
  Describe(&message->join, fields);
}

void Describe(LauncherMessage* message, Fields* fields) {
  RankGeneration& generation = message->generation;
  fields->Kind(&message->kind, LauncherMessage::Kind::kRegroupNow);
  fields->Number(&generation.number);
  fields->Number(&generation.rank);
  fields->Number(&generation.world_size);
  fields->Number(&generation.local_rank);
  fields->Number(&generation.local_world_size);
  fields->Number(&generation.node_rank);
  fields->Number(&generation.nnodes);
  fields->Text(&generation.master_addr);
  fields->Number(&generation.master_port);
  fields->Number(&generation.regroups);
  fields->Sentence(&generation.reason);
  Describe(&generation.failure, fields);
}

// Encoding does not change the message.
template <typename Message>
std::string EncodeAny(const Message& message) {
  Fields fields;
  Describe(const_cast<Message*>(&message), &fields);
  return fields.text();
}

template <typename Message>
absl::StatusOr<Message> Decode(absl::string_view text) {
  Message message;
  Fields fields(text);
  Describe(&message, &fields);
  if (fields.is_read()) return message;
  return absl::InvalidArgumentError(
      absl::StrCat("not a message of a control socket: \"", absl::CHexEscape(text.substr(0, 64)), "\""));
}

}  // namespace

std::string Encode(const RankMessage& message) { return EncodeAny(message); }

std::string Encode(const LauncherMessage& message) { return EncodeAny(message); }

absl::StatusOr<RankMessage> DecodeRankMessage(absl::string_view text) { return Decode<RankMessage>(text); }

absl::StatusOr<LauncherMessage> DecodeLauncherMessage(absl::string_view text) { return Decode<LauncherMessage>(text); }

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

}  // namespace lockstep::launch
