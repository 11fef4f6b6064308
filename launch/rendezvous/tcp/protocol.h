// The messages between the host and a guest of a TCP rendezvous, and their times.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_PROTOCOL_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_PROTOCOL_H_

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace lockstep::launch {

// The first byte of a message.
constexpr char kHello = 'H';     // guest: the job's id, a line break, the agent's id
constexpr char kWelcome = 'W';   // host, after a hello
constexpr char kPost = 'P';      // guest: the text
constexpr char kDecision = 'D';  // host: the text
constexpr char kBeat = 'B';      // both: still here
constexpr char kFarewell = 'F';  // guest: it leaves

constexpr size_t kMaxPost = size_t{1} << 20;
constexpr size_t kMaxDecision = size_t{64} << 20;

// A connection ends if the launcher on its other side does, or if a device in between resets it. The guest tries for so
// long to connect again, which takes three round trips. Then it takes the host for lost, and only later the host the
// guest.
constexpr absl::Duration kGuestTriesToReturn = absl::Milliseconds(300);
constexpr absl::Duration kHostWaitsForReturn = absl::Milliseconds(400);

inline absl::Duration BeatInterval(absl::Duration time_to_live) { return time_to_live / 5; }

// A guest that does not hear the host for the time to live ends its ranks and connects again. The host removes it
// later, after so long without a message.
inline absl::Duration HostPatience(absl::Duration time_to_live) { return time_to_live * 1.5; }
// A guest that has not heard the host for so long gives up: a minute, as with etcd, unless the time to live is much
// shorter or longer than the usual one.
inline absl::Duration GuestPatience(absl::Duration time_to_live) {
  return std::min(time_to_live * 40, std::max(absl::Minutes(1), time_to_live * 4));
}

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_TCP_PROTOCOL_H_
