// Messages between two agents over TCP. A stranger to the job's secret can neither read nor forge one.
//
//   host to guest   a name of the protocol, and a nonce
//   guest to host   a nonce
//   both ways       messages, sealed by AES-256-GCM under a key that the secret and both nonces determine, with their
//                   direction and number, so that none can be repeated, left out, or sent in another connection
//
// A frame is a length of 4 bytes, little-endian, and so many bytes.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_SEALED_STREAM_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_SEALED_STREAM_H_

#include <stdint.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/crypto/job_secret.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::launch {

// Not thread-safe. Nothing blocks.
class SealedStream {
 public:
  enum class Role { kHost, kGuest };

  // `socket` is connected, or is about to be, and does not block.
  SealedStream(UniqueFd socket, Role role, const crypto::JobSecret& secret);

  int fd() const { return socket_.get(); }
  short events() const;  // for poll()

  // Moves what the socket has and takes. Returns the messages that have arrived, also those before the end.
  std::vector<std::string> Serve();

  // Returns whether messages can be sent. For a host this does not say that the guest knows the secret: its first
  // message does.
  bool open() const { return key_.has_value(); }
  void Send(absl::string_view message);
  size_t unsent_bytes() const { return out_.size() - written_; }

  // Tells the guest, in clear, why it is refused.
  void Refuse(absl::string_view reason);
  bool refused() const { return refused_; }

  // Longer messages end the stream. At first 4 KiB.
  void set_max_message(size_t bytes) { max_message_ = bytes; }

  // Why the stream ended; OK while it has not. Unavailable: the other side closed it. PermissionDenied: it has another
  // secret, or refused this side. InvalidArgument: it does not speak this protocol.
  const absl::Status& end() const { return end_; }

 private:
  absl::Status Read();
  void Write();
  void Append(absl::string_view frame);
  std::optional<std::string> TakeFrame();
  void TakeNonce(absl::string_view frame);
  void Open(absl::string_view frame, std::vector<std::string>* messages);
  void End(absl::Status status);

  const UniqueFd socket_;
  const Role role_;
  const crypto::JobSecret secret_;
  const std::string nonce_;
  std::optional<crypto::JobSecret> key_;
  uint64_t sent_ = 0, received_ = 0;
  size_t max_message_ = 4096;
  std::string in_, out_;
  size_t written_ = 0;  // bytes of out_
  bool refused_ = false;
  absl::Status end_;
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_SEALED_STREAM_H_
