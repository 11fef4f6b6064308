// The form in which texts are kept in etcd. With a job secret they are signed, so that nobody without the secret can
// write one. The texts are not encrypted.
//
// An older text of the same key and job has a valid signature, too: a stranger who may write to etcd can put it back.

#ifndef LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_SIGNED_TEXT_H_
#define LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_SIGNED_TEXT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::launch::etcd {

// One line, "lockstep1 <signature>" or "lockstep1 -" if `secret` is empty, and then the text. The signature is the
// HMAC-SHA256 of the job's id, the key and the text, in hexadecimal.
std::string SignedText(absl::string_view secret, absl::string_view job_id, absl::string_view key,
                       absl::string_view text);

// The text. PermissionDenied: the value was not made by SignedText() with the same arguments; the message names the
// key.
absl::StatusOr<std::string> VerifiedText(absl::string_view secret, absl::string_view job_id, absl::string_view key,
                                         absl::string_view value);

}  // namespace lockstep::launch::etcd

#endif  // LOCKSTEP_LAUNCH_RENDEZVOUS_ETCD_SIGNED_TEXT_H_
