#include "lockstep/base/crypto/crypto.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"
#include "lockstep/base/posix/static_program.h"

namespace lockstep::crypto {
namespace {

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)>;

const unsigned char* In(absl::string_view bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }
unsigned char* Out(char* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

// openssl.cnf may name modules to load.
[[maybe_unused]] const bool without_modules =
    IsStaticProgram() && OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1;

// OpenSSL fails here only if it has no memory or no algorithms. The program cannot continue safely without them.
void Require(bool ok) {
  if (!ok) std::abort();
}

Cipher NewCipher() {
  Cipher cipher(EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free);
  Require(cipher != nullptr);
  return cipher;
}

}  // namespace

std::string HmacSha256(absl::string_view key, absl::string_view message) {
  std::string mac(kKeyBytes, '\0');
  Require(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), In(message), message.size(), Out(&mac[0]),
               nullptr) != nullptr);
  return mac;
}

std::string Sha256OfFile(int fd) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  Require(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::string bytes(size_t{1} << 18, '\0');
  for (;;) {
    const ssize_t count = read(fd, &bytes[0], bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return "";
    if (count == 0) break;
    Require(EVP_DigestUpdate(context.get(), bytes.data(), static_cast<size_t>(count)) == 1);
  }
  std::string digest(kKeyBytes, '\0');
  Require(EVP_DigestFinal_ex(context.get(), Out(&digest[0]), nullptr) == 1);
  return absl::BytesToHexString(digest);
}

bool SameBytes(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  Require(RAND_bytes(Out(&bytes[0]), static_cast<int>(count)) == 1);
  return bytes;
}

std::string Encrypt(absl::string_view key, absl::string_view nonce, absl::string_view context, absl::string_view text) {
  const Cipher cipher = NewCipher();
  std::string encrypted(kTagBytes + text.size(), '\0');
  unsigned char* const out = Out(&encrypted[kTagBytes]);
  int size = 0;
  Require(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, In(key), In(nonce)) == 1);
  Require(EVP_EncryptUpdate(cipher.get(), nullptr, &size, In(context), static_cast<int>(context.size())) == 1);
  Require(EVP_EncryptUpdate(cipher.get(), out, &size, In(text), static_cast<int>(text.size())) == 1);
  Require(EVP_EncryptFinal_ex(cipher.get(), out + size, &size) == 1);
  Require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, &encrypted[0]) == 1);
  return encrypted;
}

std::optional<std::string> Decrypt(absl::string_view key, absl::string_view nonce, absl::string_view context,
                                   absl::string_view encrypted) {
  if (encrypted.size() < kTagBytes) return std::nullopt;
  std::string tag(encrypted.substr(0, kTagBytes));
  encrypted.remove_prefix(kTagBytes);
  const Cipher cipher = NewCipher();
  std::string text(encrypted.size() + 1, '\0');  // never empty, so that there is a first byte to write to
  int size = 0;
  Require(EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, In(key), In(nonce)) == 1);
  Require(EVP_DecryptUpdate(cipher.get(), nullptr, &size, In(context), static_cast<int>(context.size())) == 1);
  Require(EVP_DecryptUpdate(cipher.get(), Out(&text[0]), &size, In(encrypted), static_cast<int>(encrypted.size())) ==
          1);
  Require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, &tag[0]) == 1);
  int rest = 0;
  if (EVP_DecryptFinal_ex(cipher.get(), Out(&text[0]) + size, &rest) != 1) return std::nullopt;
  text.resize(encrypted.size());
  return text;
}

}  // namespace lockstep::crypto
