#include "lockstep/launch/rendezvous/tcp/sealed_stream.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/crypto/crypto.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch {
namespace {

constexpr absl::string_view kProtocol = "lockstep launch 1 ";
constexpr absl::string_view kRefusal = "lockstep launch refused: ";
constexpr size_t kNonceBytes = 32;
constexpr size_t kLengthBytes = 4;
constexpr size_t kSealBytes = 64;       // what Seal() adds, and more
constexpr size_t kReadBytes = 1 << 16;  // at once
// The most memory that the buffer of sent messages keeps. A decision for 1,000 nodes has 100 KB, which each of 1,000
// streams would keep.
constexpr size_t kKeptBytes = 4096;

uint32_t LengthAt(const char* bytes) {
  const auto* b = reinterpret_cast<const unsigned char*>(bytes);
  return b[0] | uint32_t{b[1]} << 8 | uint32_t{b[2]} << 16 | uint32_t{b[3]} << 24;
}

std::string KeyOf(bool from_host, uint64_t number) { return absl::StrCat(from_host ? "host " : "guest ", number); }

}  // namespace

SealedStream::SealedStream(UniqueFd socket, Role role, const crypto::JobSecret& secret)
    : socket_(std::move(socket)), role_(role), secret_(secret), nonce_(crypto::RandomBytes(kNonceBytes)) {
  if (role_ == Role::kHost) Append(absl::StrCat(kProtocol, nonce_));
}

short SealedStream::events() const { return unsent_bytes() > 0 ? POLLIN | POLLOUT : POLLIN; }

std::vector<std::string> SealedStream::Serve() {
  std::vector<std::string> messages;
  const absl::Status read = Read();
  while (end_.ok()) {
    const std::optional<std::string> frame = TakeFrame();
    if (!frame) break;
    if (key_) {
      Open(*frame, &messages);
    } else {
      TakeNonce(*frame);
    }
  }
  // Messages that arrived before the end may say more about it.
  if (!read.ok()) End(read);
  Write();
  return messages;
}

absl::Status SealedStream::Read() {
  char buffer[kReadBytes];
  while (end_.ok() && in_.size() <= max_message_ + kSealBytes) {
    const ssize_t got = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got > 0) {
      in_.append(buffer, got);
    } else if (got == 0) {
      return absl::UnavailableError("the other side closed the connection");
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      return absl::UnavailableError(strerror(errno));
    }
  }
  return absl::OkStatus();
}

void SealedStream::Write() {
  while (unsent_bytes() > 0) {
    const ssize_t put = send(socket_.get(), out_.data() + written_, unsent_bytes(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno != EAGAIN && errno != ENOTCONN) End(absl::UnavailableError(strerror(errno)));
    if (put < 0) break;
    written_ += put;
  }
  if (unsent_bytes() > 0) return;
  out_.clear();
  if (out_.capacity() > kKeptBytes) out_.shrink_to_fit();
  written_ = 0;
  if (refused_) End(absl::PermissionDeniedError("it was refused"));
}

void SealedStream::Append(absl::string_view frame) {
  const auto length = static_cast<uint32_t>(frame.size());
  for (size_t i = 0; i < kLengthBytes; ++i) out_.push_back(static_cast<char>(length >> (8 * i)));
  out_.append(frame.data(), frame.size());
}

std::optional<std::string> SealedStream::TakeFrame() {
  if (in_.size() < kLengthBytes) return std::nullopt;
  const size_t length = LengthAt(in_.data());
  if (length > max_message_ + kSealBytes) {
    in_.clear();
    End(absl::InvalidArgumentError(key_ ? absl::StrCat("a message has ", length, " bytes, more than ", max_message_)
                                        : "it is not a launcher of Lockstep"));
    return std::nullopt;
  }
  if (in_.size() < kLengthBytes + length) return std::nullopt;
  std::string frame = in_.substr(kLengthBytes, length);
  in_.erase(0, kLengthBytes + length);
  return frame;
}

void SealedStream::TakeNonce(absl::string_view frame) {
  const bool is_host = role_ == Role::kHost;
  absl::string_view nonce = frame;
  if ((!is_host && !absl::ConsumePrefix(&nonce, kProtocol)) || nonce.size() != kNonceBytes) {
    in_.clear();
    End(absl::InvalidArgumentError("it is not a launcher of Lockstep"));
    return;
  }
  if (!is_host) Append(nonce_);
  const std::string nonces = is_host ? absl::StrCat(nonce_, nonce) : absl::StrCat(nonce, nonce_);
  key_ = secret_.Derive(absl::StrCat("launch ", absl::BytesToHexString(nonces)));
}

void SealedStream::Open(absl::string_view frame, std::vector<std::string>* messages) {
  const absl::StatusOr<std::string> message = key_->Open(KeyOf(role_ == Role::kGuest, received_), frame);
  if (message.ok()) {
    ++received_;
    messages->push_back(*message);
    return;
  }
  in_.clear();
  if (role_ == Role::kHost && received_ == 0) {
    Refuse("the job there has another secret (LOCKSTEP_JOB_SECRET)");
  } else if (role_ == Role::kGuest && absl::ConsumePrefix(&frame, kRefusal)) {
    End(absl::PermissionDeniedError(Printable(frame)));
  } else {
    End(absl::PermissionDeniedError("it has another secret"));
  }
}

void SealedStream::Send(absl::string_view message) {
  if (end_.ok() && key_) Append(key_->Seal(KeyOf(role_ == Role::kHost, sent_++), message));
}

void SealedStream::Refuse(absl::string_view reason) {
  Append(absl::StrCat(kRefusal, reason));
  refused_ = true;
  Write();
}

void SealedStream::End(absl::Status status) {
  if (end_.ok()) end_ = std::move(status);
}

}  // namespace lockstep::launch
