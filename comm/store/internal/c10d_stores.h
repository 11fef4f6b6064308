// Opens PyTorch's three kinds of stores. Failures are statuses, TCP stores listen on one interface only, and SIGPIPE is
// blocked.

#ifndef LOCKSTEP_COMM_STORE_INTERNAL_C10D_STORES_H_
#define LOCKSTEP_COMM_STORE_INTERNAL_C10D_STORES_H_

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::internal {

using C10dStore = c10::intrusive_ptr<c10d::Store>;

struct Address {
  std::string host;
  int port = 0;
};
std::string ToString(const Address& address);  // "host:port", "[::1]:port"

// Serves a store on `listen_fd`, and is a client of it too. `listen_fd` must already listen
// at `address`. Does not check whether others can reach that address.
absl::StatusOr<C10dStore> ServeTcpStore(const Address& address, UniqueFd listen_fd, absl::Duration timeout);

// Connects to a store with a client whose calls always end and which logs nothing (see TcpStoreClient). Retries until
// the store answers. `count_as_worker`: a Python rank 0 waits for this connection among others before it continues.
// `timeout` also limits each later call. While nothing has answered, calls `waiting` with the reason; it must own
// everything it uses, and may be null. NotFound: the host is still unknown at the end. DeadlineExceeded: nothing
// listens or answers. Unavailable: the server is not a store. The first error of `interruption`, which is asked until
// the store answers, and may be null, is returned. `host_is_up`: Unavailable, if the host does not answer for 15 s.
absl::StatusOr<C10dStore> ConnectTcpStore(const Address& address, bool count_as_worker, absl::Duration timeout,
                                          std::function<void(absl::string_view why)> waiting = nullptr,
                                          const std::function<absl::Status()>& interruption = nullptr,
                                          bool host_is_up = false);

// Opens a file shared by processes of one host, or of hosts with a common file system. The last of `users` clients to
// leave removes it. NotFound: its folder does not exist. InvalidArgument: the path is not absolute, or is a folder.
absl::StatusOr<C10dStore> OpenFileStore(const std::string& path, int users, absl::Duration timeout);

// For messages: "store at host:port", "file store /path" or "in-process store". Ignores prefixes and seals.
std::string Describe(const C10dStore& store);

// The number of requests that `store`'s client has sent to its server. 0 for a store that is not from
// ConnectTcpStore(). Ignores prefixes and seals.
int64_t RequestsSent(const C10dStore& store);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_STORE_INTERNAL_C10D_STORES_H_
