#include "lockstep/comm/watch/internal/handshake.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/crypto/crypto.h"

namespace lockstep::comm::internal {
namespace {

std::string Proof(absl::string_view whose, absl::string_view token, absl::string_view challenge,
                  absl::string_view nonce, int rank) {
  return absl::BytesToHexString(
      crypto::HmacSha256(token, absl::StrCat("lockstep watch|", whose, "|", challenge, "|", nonce, "|", rank)));
}

}  // namespace

std::string HelloText(absl::string_view token, absl::string_view challenge, absl::string_view nonce, int rank) {
  return absl::StrCat(nonce, Proof("rank", token, challenge, nonce, rank));
}

bool IsHello(absl::string_view hello, absl::string_view token, absl::string_view challenge, int rank) {
  if (hello.size() != kNonceText + kProofText) return false;
  return crypto::SameBytes(hello, HelloText(token, challenge, hello.substr(0, kNonceText), rank));
}

std::string ProofText(absl::string_view token, absl::string_view challenge, absl::string_view hello, int rank) {
  return Proof("hub", token, challenge, hello.substr(0, kNonceText), rank);
}

bool IsProof(absl::string_view proof, absl::string_view token, absl::string_view challenge, absl::string_view hello,
             int rank) {
  return crypto::SameBytes(proof, ProofText(token, challenge, hello, rank));
}

}  // namespace lockstep::comm::internal
