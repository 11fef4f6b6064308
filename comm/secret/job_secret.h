// A secret that the ranks of one job share and nobody else knows. No LibTorch.

#ifndef LOCKSTEP_COMM_SECRET_JOB_SECRET_H_
#define LOCKSTEP_COMM_SECRET_JOB_SECRET_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/rank_environment.h"

namespace lockstep::comm {

inline constexpr char kJobSecretVariable[] = "LOCKSTEP_JOB_SECRET";
inline constexpr char kJobSecretFileVariable[] = "LOCKSTEP_JOB_SECRET_FILE";

// Seals values for a store that anybody may read and write: a sealed value can neither be read nor made without the
// secret, and is good for one key only. Copies are cheap; all methods may be called from any thread.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<JobSecret> secret, ReadJobSecret());
//   store->set("lockstep/failure", secret->Seal("lockstep/failure", "the disk is full"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, secret->Open("lockstep/failure", store->get_to_str(...)));
class JobSecret {
 public:
  // Any bytes. White space around them does not count. InvalidArgument for less than 16 bytes.
  static absl::StatusOr<JobSecret> FromText(absl::string_view text);

  // `value` for `key`: encrypted and authenticated by AES-256-GCM with a random nonce, so it differs from call to call.
  // 32 bytes longer than `value`.
  std::string Seal(absl::string_view key, absl::string_view value) const;

  // What was given to Seal() with this secret and `key`. PermissionDenied, naming the key, for anything else: a value
  // that is not sealed, is sealed with another secret or for another key, or was changed.
  absl::StatusOr<std::string> Open(absl::string_view key, absl::string_view sealed) const;

  // A secret for one use. It says nothing about this secret, nor about those of other labels.
  JobSecret Derive(absl::string_view label) const;

 private:
  explicit JobSecret(std::string key);
  std::string key_;       // for Derive()
  std::string seal_key_;  // for Seal() and Open()
};

// Whether `text` looks like a value that Seal() made, with whatever secret.
bool IsSealed(absl::string_view text);

// The secret that LOCKSTEP_JOB_SECRET is, or that the file holds which LOCKSTEP_JOB_SECRET_FILE names; nothing if
// neither is set. InvalidArgument if both are set, for a secret of less than 16 bytes, and for a file that is empty, is
// larger than 4 KiB or is not a regular file; NotFound for a file that does not exist; PermissionDenied for one that
// every user of the host may read or write. No message contains any part of the secret.
absl::StatusOr<std::optional<JobSecret>> ReadJobSecret(const EnvironmentLookup& lookup = ProcessEnvironment);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_SECRET_JOB_SECRET_H_
