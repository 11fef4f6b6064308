#ifndef LOCKSTEP_COMM_SHM_INTERNAL_FD_PASSING_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_FD_PASSING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lockstep::comm::shm::internal {

// A file descriptor of this process; closed with it.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  OwnedFd& operator=(OwnedFd&&) = delete;
  ~OwnedFd();
  int get() const { return fd_; }

 private:
  int fd_;
};

// Hands one descriptor to every rank but 0.
class FdServer {
 public:
  // Listens at once, at an abstract Unix address with a random name: it exists in this network namespace only and goes
  // with the process.
  static absl::StatusOr<std::unique_ptr<FdServer>> Listen();

  // What a rank needs to ask for it: the address and a random token.
  const std::string& address() const { return address_; }

  // Sends `fd` to each rank in [1, size) that shows the token. Who does not, or is another user's process, is turned
  // away; one that says nothing cannot hold up the others. DeadlineExceeded naming the ranks that did not come.
  absl::Status Serve(int fd, int size, absl::Time deadline);

 private:
  FdServer(OwnedFd listener, std::string address, std::string token);
  const OwnedFd listener_;
  const std::string address_;
  const std::string token_;
};

// Asks the server at `address` for its descriptor. Unavailable if it has gone.
absl::StatusOr<OwnedFd> ReceiveFd(const std::string& address, int rank, absl::Time deadline);

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_FD_PASSING_H_
