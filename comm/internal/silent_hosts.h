// Which other hosts do not answer this process.

#ifndef LOCKSTEP_COMM_INTERNAL_SILENT_HOSTS_H_
#define LOCKSTEP_COMM_INTERNAL_SILENT_HOSTS_H_

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lockstep::comm::internal {

// The words of errors about such a host.
inline constexpr char kDoesNotAnswer[] = "does not answer this one; can the two reach each other?";

// The address of the other end of a TCP connection; nullopt: this descriptor is not one.
std::optional<std::string> PeerOf(int fd);

// Finds a host that does not answer while somebody else's code connects to it.
class ConnectingHosts {
 public:
  // The address of a host to which one of these sockets (descriptor, inode) has connected in vain for 15 s; "" if there
  // is none. Call it about once a second.
  std::string Silent(absl::Time now, const std::map<int, ino_t>& sockets);

 private:
  std::map<ino_t, absl::Time> since_;  // of sockets whose first message was sent again
};

// A host has not answered at this address when this process tried to connect. Thread-safe.
void RecordSilentHost(const std::string& address);

// Forgets what was noted, and does not count the connections that this process has now: a group begins. Thread-safe.
void ForgetSilentHosts();

// The addresses noted since the last call, and the addresses of connections of this process, made since
// ForgetSilentHosts(), on which the other host owes an answer for 10 s or more. So call it while they are open.
// Thread-safe.
std::vector<std::string> TakeSilentHosts();

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_SILENT_HOSTS_H_
