// Several hosts on one machine, for tests: network namespaces connected to a router.

#ifndef LOCKSTEP_COMM_TESTING_NETWORK_HOSTS_H_
#define LOCKSTEP_COMM_TESTING_NETWORK_HOSTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::testing {

// Host h has a loopback and an interface "eth0" with the address 10.213.h.2. Each host has a separate subnet, and a
// router forwards between them. Nothing outside is reachable, and name lookups fail. The namespaces have no
// names: they disappear with this object and the processes inside, so nothing is left behind, even if the test is
// killed.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto hosts, NetworkHosts::Create(2));
//   hosts->Run(0, [&] { Serve(hosts->Address(0)); });
//
// Needs iproute2, and root or a system that lets an ordinary user create a user namespace.
class NetworkHosts {
 public:
  // FailedPrecondition: the namespaces cannot be created; the message names the refused step.
  static absl::StatusOr<std::unique_ptr<NetworkHosts>> Create(int count);

  int count() const { return static_cast<int>(hosts_.size()); }
  std::string Address(int host) const;

  // Runs `body` on a thread inside the host and returns when it has returned. Threads and processes that it starts are
  // inside too, and so are sockets that it opens, wherever they are used later.
  void Run(int host, const std::function<void()>& body) const;

  // The words of a command that runs the words after them as a program inside the host, as the same process. For a
  // program that must be a child of the calling thread.
  std::vector<std::string> CommandInside(int host) const;

  // Disconnects a host's interface: packets from and to it are silently lost. Mend() connects it again.
  absl::Status Cut(int host) const;
  absl::Status Mend(int host) const;
  // Cuts the path of packets between two hosts alone: others reach both of them.
  absl::Status CutPair(int a, int b) const;
  // Cuts the path of packets from one host to another alone. If `open_port` is not 0, TCP connections to that port of
  // either host pass.
  absl::Status CutPath(int from, int to, int open_port = 0) const;
  absl::Status MendPath(int from, int to, int open_port = 0) const;

 private:
  NetworkHosts() = default;
  absl::Status Make(int count);
  absl::Status Wire(int host);
  absl::Status ChangeRules(const char* change, int from, int to, int open_port) const;

  UniqueFd router_;  // these are descriptors of network namespaces
  std::vector<UniqueFd> hosts_;
};

// Returns the bytes that eth0 of the calling thread's host has sent, with all headers; -1 if there is none.
int64_t SentBytes();

}  // namespace lockstep::comm::testing

#endif  // LOCKSTEP_COMM_TESTING_NETWORK_HOSTS_H_
