#include "lockstep/launch/rendezvous/etcd/signed_text.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/crypto/crypto.h"
#include "lockstep/base/printable.h"

namespace lockstep::launch::etcd {
namespace {

constexpr absl::string_view kMagic = "lockstep1 ", kUnsigned = "-";

// Each part is preceded by its length, so that no two triples have the same bytes.
std::string Signature(absl::string_view secret, absl::string_view job_id, absl::string_view key,
                      absl::string_view text) {
  if (secret.empty()) return std::string(kUnsigned);
  const std::string own_key = crypto::HmacSha256(secret, "lockstep launch etcd");
  const std::string message = absl::StrCat(job_id.size(), ":", job_id, key.size(), ":", key, text.size(), ":", text);
  return absl::BytesToHexString(crypto::HmacSha256(own_key, message));
}

absl::Status Refused(absl::string_view key, absl::string_view why) {
  return absl::PermissionDeniedError(
      absl::StrCat("etcd key ", Printable(key), " was not written by an agent of this job: ", why));
}

}  // namespace

std::string SignedText(absl::string_view secret, absl::string_view job_id, absl::string_view key,
                       absl::string_view text) {
  return absl::StrCat(kMagic, Signature(secret, job_id, key, text), "\n", text);
}

absl::StatusOr<std::string> VerifiedText(absl::string_view secret, absl::string_view job_id, absl::string_view key,
                                         absl::string_view value) {
  const size_t end = value.find('\n');
  absl::string_view signature = value.substr(0, end);
  if (end == absl::string_view::npos || !absl::ConsumePrefix(&signature, kMagic)) {
    return Refused(key, "its value does not begin with a line \"lockstep1 ...\"");
  }
  const absl::string_view text = value.substr(end + 1);
  if (crypto::SameBytes(signature, Signature(secret, job_id, key, text))) return std::string(text);
  if (secret.empty()) return Refused(key, "it is signed with a job secret, and this agent has none");
  if (signature == kUnsigned) return Refused(key, "it is not signed, and this agent has a job secret");
  return Refused(key, "it is signed with another job secret");
}

}  // namespace lockstep::launch::etcd
