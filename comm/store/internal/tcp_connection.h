#ifndef LOCKSTEP_COMM_STORE_INTERNAL_TCP_CONNECTION_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_TCP_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::internal {

// A TCP connection whose waits all have a deadline. Small messages are sent at once. If the other host vanishes, the
// connection ends in 20 s, even while nothing is sent. Not thread-safe.
class TcpConnection {
 public:
  // Tries each address of `host` in turn, until the deadline, or for `limit` from when the addresses are known.
  // NotFound: the host is unknown. Unavailable, with the reason: nothing listens there. DeadlineExceeded: no address
  // has answered. ResourceExhausted: no descriptor is free. The system's resolver may exceed the deadline.
  static absl::StatusOr<std::unique_ptr<TcpConnection>> Connect(const std::string& host, int port, absl::Time deadline,
                                                                absl::Duration limit = absl::InfiniteDuration());

  explicit TcpConnection(UniqueFd fd);  // does not block
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // Sends all of `bytes`. Unavailable: the connection has ended. DeadlineExceeded: an unknown part was sent.
  absl::Status Send(absl::string_view bytes, absl::Time deadline);

  // Receives `size` bytes. Returns Send()'s errors.
  absl::Status Receive(void* bytes, size_t size, absl::Time deadline);

  // Returns whether, by `deadline`, there is data to receive or the connection has ended.
  bool AwaitInput(absl::Time deadline) const;

 private:
  const UniqueFd fd_;
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_TCP_CONNECTION_H_
