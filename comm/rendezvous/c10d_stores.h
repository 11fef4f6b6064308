// PyTorch's three stores, made so that they fail with a status, listen on one interface only, and survive SIGPIPE.

#ifndef LOCKSTEP_COMM_RENDEZVOUS_C10D_STORES_H_
#define LOCKSTEP_COMM_RENDEZVOUS_C10D_STORES_H_

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep::comm::internal {

using C10dStore = c10::intrusive_ptr<c10d::Store>;

struct Address {
  std::string host;
  int port = 0;
};
std::string ToString(const Address& address);  // "host:port", "[::1]:port"

// Serves a store on `listen_fd`, which it takes and which listens at `address` already, and is a client of it too.
absl::StatusOr<C10dStore> ServeTcpStore(const Address& address, int listen_fd, absl::Duration timeout);

// A client, whose calls all end and which logs nothing (see TcpStoreClient); tries until somebody answers.
// `count_as_worker`: this connection is one of those that a Python rank 0 waits for before it goes on. NotFound if the
// host is unknown at the end, DeadlineExceeded if nobody listens or answers, Unavailable if what answers is not a
// store. `timeout` is also the longest of each later call. `waiting`, which must own what it touches, is told meanwhile
// why nobody has answered; it may be null.
absl::StatusOr<C10dStore> ConnectTcpStore(const Address& address, bool count_as_worker, absl::Duration timeout,
                                          std::function<void(absl::string_view why)> waiting = nullptr);

// A file that processes of one host, or of hosts with a common file system, share. The last of `users` to leave removes
// it. NotFound if its folder does not exist, InvalidArgument for a path that is not absolute or is a folder.
absl::StatusOr<C10dStore> OpenFileStore(const std::string& path, int users, absl::Duration timeout);

// "store at host:port", "file store /path" or "in-process store", for messages; looks through prefixes and seals.
std::string Describe(const C10dStore& store);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_RENDEZVOUS_C10D_STORES_H_
