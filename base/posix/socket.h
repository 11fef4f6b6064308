// TCP sockets.

#ifndef LOCKSTEP_BASE_POSIX_SOCKET_H_
#define LOCKSTEP_BASE_POSIX_SOCKET_H_

#include <string>

namespace lockstep {

// The address from which this host sends to `host`, a name or an address. Empty if `host` is unknown or unreachable.
std::string LocalAddressTowards(const std::string& host);

// "host:port", with brackets around an IPv6 address: "[::1]:29400".
std::string WithPort(const std::string& host, const std::string& port);

// Makes a TCP connection ask the other host each 5 s whether it is there, while nothing is under way. Without an answer
// for 45 s the connection ends. A process that is slow, or stopped, is not a host that does not answer.
void AskForAnswers(int fd);

// For how long the other host of a TCP connection has answered nothing, in milliseconds: it owes an answer to data or
// to AskForAnswers(). 0: it owes none. If a host vanishes, TuneConnection() finds that in 20 s. Then this may be 25 s,
// since the last answer may be older by 5 s. So what is silent for longer is a host that others reach.
int MillisecondsWithoutAnswer(int fd);

// Makes a TCP connection send small messages at once, and report within 20 s that the other host vanished, even if
// nothing is sent. Does nothing for other kinds of sockets.
void TuneConnection(int fd);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_POSIX_SOCKET_H_
