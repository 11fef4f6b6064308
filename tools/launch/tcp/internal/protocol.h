// What the host and a guest of a TCP rendezvous say to each other, and when.

#ifndef LOCKSTEP_TOOLS_LAUNCH_TCP_INTERNAL_PROTOCOL_H_
#define LOCKSTEP_TOOLS_LAUNCH_TCP_INTERNAL_PROTOCOL_H_

#include <cstddef>

#include "absl/time/time.h"

namespace lockstep::launch::internal {

// The first byte of a message.
constexpr char kHello = 'H';     // guest: the job's id, a line break, the agent's id
constexpr char kWelcome = 'W';   // host, after a hello
constexpr char kPost = 'P';      // guest: the text
constexpr char kDecision = 'D';  // host: the text
constexpr char kBeat = 'B';      // both: still here
constexpr char kFarewell = 'F';  // guest: it leaves

constexpr size_t kMaxPost = size_t{1} << 20;
constexpr size_t kMaxDecision = size_t{64} << 20;

// After a connection has ended, the guest tries for so long to connect again. Then it takes the host for lost, and only
// later the host the guest.
constexpr absl::Duration kGuestTriesToReturn = absl::Milliseconds(700);
constexpr absl::Duration kHostWaitsForReturn = absl::Milliseconds(1000);

inline absl::Duration BeatInterval(absl::Duration time_to_live) { return time_to_live / 5; }

}  // namespace lockstep::launch::internal

#endif  // LOCKSTEP_TOOLS_LAUNCH_TCP_INTERNAL_PROTOCOL_H_
