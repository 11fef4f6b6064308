#ifndef LOCKSTEP_COMM_SHM_INTERNAL_FD_PASSING_H_
#define LOCKSTEP_COMM_SHM_INTERNAL_FD_PASSING_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::shm::internal {

// An error ends a wait early. Null: nothing does.
using StillWanted = std::function<absl::Status()>;

// Hands one descriptor to every rank but 0.
class FdServer {
 public:
  // Listens at once, at an abstract Unix address with a random name: it exists in this network namespace only and goes
  // with the process.
  static absl::StatusOr<std::unique_ptr<FdServer>> Listen();

  // The address and a random token, with which a rank requests it.
  const std::string& address() const { return address_; }

  // Sends `fd` to each rank in [1, size) that sends the token. A connection with another token, or from a process of
  // another user, is closed. A silent connection is closed after 2 s, or earlier if there are more than 64 besides one
  // for each rank still to come, the oldest first. `still_wanted` is called every 20 ms, and its error is returned.
  // DeadlineExceeded: ranks did not come; the message names them. ResourceExhausted: this process is out of
  // descriptors.
  absl::Status Serve(int fd, int size, absl::Time deadline, const StillWanted& still_wanted);

 private:
  FdServer(UniqueFd listener, std::string address, std::string token);
  const UniqueFd listener_;
  const std::string address_;
  const std::string token_;
};

// Asks the server at `address` for its descriptor, and again when the server closes the connection without sending it.
// Unavailable if the server has gone; ResourceExhausted if this process is out of descriptors; the error of
// `still_wanted`, which is asked every 20 ms.
absl::StatusOr<UniqueFd> ReceiveFd(const std::string& address, int rank, absl::Time deadline,
                                   const StillWanted& still_wanted);

}  // namespace lockstep::comm::shm::internal

#endif  // LOCKSTEP_COMM_SHM_INTERNAL_FD_PASSING_H_
