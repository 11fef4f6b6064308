#ifndef LOCKSTEP_COMM_RENDEZVOUS_TCP_CONNECTION_H_
#define LOCKSTEP_COMM_RENDEZVOUS_TCP_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

// A TCP connection of which every wait has a deadline. Small messages go at once, and a host that has vanished ends the
// connection in 20 s, even while nothing is sent. One thread uses it at a time.
class TcpConnection {
 public:
  // Tries each address of `host` in turn. NotFound for an unknown host, Unavailable with the reason if nobody listens
  // there, DeadlineExceeded, ResourceExhausted without descriptors. The system's resolver may take longer.
  static absl::StatusOr<std::unique_ptr<TcpConnection>> Connect(const std::string& host, int port, absl::Time deadline);

  explicit TcpConnection(int fd);  // takes it; non-blocking
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // All of `bytes`. Unavailable if the connection has ended, DeadlineExceeded: then how much was sent is not known.
  absl::Status Send(absl::string_view bytes, absl::Time deadline);

  // `size` bytes, with the errors of Send().
  absl::Status Receive(void* bytes, size_t size, absl::Time deadline);

  // Whether, by `deadline`, there is something to receive, or the connection has ended.
  bool AwaitInput(absl::Time deadline) const;

 private:
  const int fd_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_TCP_CONNECTION_H_
