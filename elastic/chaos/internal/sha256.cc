#include "lockstep/elastic/chaos/internal/sha256.h"

#include <openssl/evp.h>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::elastic::chaos::internal {

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  const std::string bytes = launch::testing::ReadFile(path);
  if (bytes.empty()) return absl::NotFoundError(absl::StrCat("chaos: ", path, " is not there, or empty"));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
}

}  // namespace lockstep::elastic::chaos::internal
