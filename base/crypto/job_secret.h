// A secret shared by the ranks of one job only. No LibTorch.

#ifndef LOCKSTEP_BASE_CRYPTO_JOB_SECRET_H_
#define LOCKSTEP_BASE_CRYPTO_JOB_SECRET_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::crypto {

inline constexpr char kJobSecretVariable[] = "LOCKSTEP_JOB_SECRET";
inline constexpr char kJobSecretFileVariable[] = "LOCKSTEP_JOB_SECRET_FILE";

// Seals values for a store that anyone can read and write. Without the secret, a sealed value can neither be read nor
// created. It is valid for one key only. Copies are cheap. All methods may be called from any thread.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<JobSecret> secret, ReadJobSecret());
//   store->set("lockstep/failure", secret->Seal("lockstep/failure", "the disk is full"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, secret->Open("lockstep/failure", store->get_to_str(...)));
class JobSecret {
 public:
  // Creates a secret from any bytes. Surrounding white space is ignored. InvalidArgument: fewer than 16 bytes.
  static absl::StatusOr<JobSecret> FromText(absl::string_view text);

  // Encrypts and authenticates `value` for `key`, by AES-256-GCM with a random nonce, so the result differs from call
  // to call. It is 32 bytes longer than `value`.
  std::string Seal(absl::string_view key, absl::string_view value) const;

  // Returns the value that was sealed with this secret and `key`. PermissionDenied, naming the key: the value is not
  // sealed, was sealed with another secret or for another key, or was changed.
  absl::StatusOr<std::string> Open(absl::string_view key, absl::string_view sealed) const;

  // A secret for one purpose. It reveals nothing about this secret, or about the secrets of other labels.
  JobSecret Derive(absl::string_view label) const;

  // A secret for one purpose, as 32 bytes for another algorithm.
  std::string DeriveKey(absl::string_view label) const;

 private:
  explicit JobSecret(std::string key);
  std::string key_;       // for Derive()
  std::string seal_key_;  // for Seal() and Open()
};

// Returns whether `text` looks like the result of Seal(), with any secret.
bool IsSealed(absl::string_view text);

// The value of an environment variable, nullopt if it is not set.
using VariableLookup = std::function<std::optional<std::string>(absl::string_view name)>;

// This process's.
std::optional<std::string> ProcessVariable(absl::string_view name);

// Returns the secret in LOCKSTEP_JOB_SECRET, or in the file at LOCKSTEP_JOB_SECRET_FILE; nullopt if neither is set.
// InvalidArgument: both are set, the secret has fewer than 16 bytes, or the file is empty, larger than 4 KiB or not a
// regular file. NotFound: the file does not exist. PermissionDenied: every user of the host may read or write it. No
// message contains any part of the secret.
absl::StatusOr<std::optional<JobSecret>> ReadJobSecret(const VariableLookup& lookup = ProcessVariable);

}  // namespace lockstep::crypto

#endif  // LOCKSTEP_BASE_CRYPTO_JOB_SECRET_H_
