#ifndef LOCKSTEP_COMM_WATCH_INTERNAL_HANDSHAKE_H_
#define LOCKSTEP_COMM_WATCH_INTERNAL_HANDSHAKE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::comm::internal {

// How a rank and the hub prove to each other that they know the group's token, without sending it:
//
//   hub to rank   kChallenge   the hub's nonce
//   rank to hub   kHello       the rank's nonce, and an HMAC of both nonces and the rank under the token
//   hub to rank   kProof       another HMAC of the same
//
// Who reads along can use none of it for another connection.

constexpr size_t kNonceText = 32;  // hexadecimal digits, as RandomToken() gives them
constexpr size_t kProofText = 64;

// The text of the hello that answers `challenge`. `nonce` is new for each connection.
std::string HelloText(absl::string_view token, absl::string_view challenge, absl::string_view nonce, int rank);

// Returns whether `hello` was made with `token` for `challenge` and `rank`.
bool IsHello(absl::string_view hello, absl::string_view token, absl::string_view challenge, int rank);

// The hub's proof to the rank that said `hello`.
std::string ProofText(absl::string_view token, absl::string_view challenge, absl::string_view hello, int rank);

// Returns whether `proof` is ProofText() of the other arguments.
bool IsProof(absl::string_view proof, absl::string_view token, absl::string_view challenge, absl::string_view hello,
             int rank);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_WATCH_INTERNAL_HANDSHAKE_H_
