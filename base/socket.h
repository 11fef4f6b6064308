// TCP sockets.

#ifndef LOCKSTEP_BASE_SOCKET_H_
#define LOCKSTEP_BASE_SOCKET_H_

#include <string>

namespace lockstep {

// The address from which this host sends to `host`, a name or an address. Empty if `host` is unknown or unreachable.
std::string LocalAddressTowards(const std::string& host);

// "host:port", with brackets around an IPv6 address: "[::1]:29400".
std::string WithPort(const std::string& host, const std::string& port);

// Makes a TCP connection send small messages at once, and report within 20 s that the other host vanished, even if
// nothing is sent. Does nothing for other kinds of sockets.
void TuneConnection(int fd);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_SOCKET_H_
