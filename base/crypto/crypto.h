// Cryptographic functions for the other files, all from OpenSSL. No LibTorch.

#ifndef LOCKSTEP_BASE_CRYPTO_CRYPTO_H_
#define LOCKSTEP_BASE_CRYPTO_CRYPTO_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lockstep::crypto {

// Keys, nonces, tags and texts are bytes, not hexadecimal.
constexpr size_t kKeyBytes = 32;
constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

// HMAC-SHA256 (RFC 2104): 32 bytes. The key may have any length.
std::string HmacSha256(absl::string_view key, absl::string_view message);

// SHA-256 (FIPS 180-4) of the bytes from the descriptor's position to the end of its file: 64 hexadecimal digits, as
// sha256sum prints them. "" if they cannot be read.
std::string Sha256OfFile(int fd);

// Returns whether both have the same bytes. The time does not depend on where they differ.
bool SameBytes(absl::string_view a, absl::string_view b);

// Random bytes from the operating system's generator. Ends the process if that fails.
std::string RandomBytes(size_t count);

// AES-256-GCM (NIST SP 800-38D): returns the tag, followed by the encrypted `text`. `context` is authenticated but not
// encrypted. `key` has kKeyBytes, and `nonce` kNonceBytes. Never use a nonce twice with one key.
std::string Encrypt(absl::string_view key, absl::string_view nonce, absl::string_view context, absl::string_view text);

// The text, or nullopt if an argument differs from that of Encrypt().
std::optional<std::string> Decrypt(absl::string_view key, absl::string_view nonce, absl::string_view context,
                                   absl::string_view encrypted);

}  // namespace lockstep::crypto

#endif  // LOCKSTEP_BASE_CRYPTO_CRYPTO_H_
