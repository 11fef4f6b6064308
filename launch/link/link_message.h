// The messages of a rank and its launcher over the rank's control socket, a SOCK_SEQPACKET pair: one text a packet.

#ifndef LOCKSTEP_LAUNCH_LINK_LINK_MESSAGE_H_
#define LOCKSTEP_LAUNCH_LINK_LINK_MESSAGE_H_

#include <stddef.h>
#include <stdint.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/launch/link/rank_generation.h"

namespace lockstep::launch {

// Names the descriptor that a rank inherits.
inline constexpr char kLinkVariable[] = "LOCKSTEP_AGENT_LINK_FD";

// The longest text of a packet, in bytes. Sentences are cut so that a packet has room for all of its fields.
inline constexpr size_t kMostLinkBytes = 8192;

// From a rank.
struct RankMessage {
  enum class Kind {
    kStays,     // the rank stays when another one fails
    kReady,     // it waits for a generation
    kProgress,  // it has completed `step`
    kStalls,    // it waits for long, for the reason in `join`; `step` is the rank that it waits for, or -1
    kFinished,  // it has done its work; and so have all ranks of its generation, if `all`
    kFails,     // it is about to exit, because of the failure in `join`
    kUnfit,     // it cannot work with the others, nor could another process in its place
    kEndsJob,   // the job must end, for the reason in `join`
  };

  Kind kind = Kind::kReady;
  int64_t left = 0;  // kReady: the generation that the rank has left; 0: none
  JoinOptions join;  // kReady, without the timeout
  int64_t step = 0;  // kProgress, kStalls
  bool all = false;  // kFinished
};

// From the launcher.
struct LauncherMessage {
  enum class Kind {
    kGeneration,        // `generation` has begun. Its rank 0 gets a listening socket with the message
    kRegroupAfterStep,  // leave the generation of that number between two steps
    kRegroupNow,        // leave the generation of that number: it is broken
  };

  Kind kind = Kind::kGeneration;
  RankGeneration generation;  // for the last two kinds, its number and the reason alone
};

std::string Encode(const RankMessage& message);
std::string Encode(const LauncherMessage& message);

// InvalidArgument for a text that the functions above did not write.
absl::StatusOr<RankMessage> DecodeRankMessage(absl::string_view text);
absl::StatusOr<LauncherMessage> DecodeLauncherMessage(absl::string_view text);

// Sends one packet, with a copy of the descriptor `passed` unless that is -1. Does not block. Unavailable: the other
// end is closed. ResourceExhausted: it does not read.
absl::Status SendPacket(int socket, absl::string_view text, int passed = -1);

struct Packet {
  std::string text;  // "": there is none now
  UniqueFd passed;
};

// The next packet. Does not block. Unavailable: the other end is closed.
absl::StatusOr<Packet> ReceivePacket(int socket);

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_LINK_LINK_MESSAGE_H_
