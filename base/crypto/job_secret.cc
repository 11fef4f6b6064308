#include "lockstep/base/crypto/job_secret.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/crypto/crypto.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::crypto {
namespace {

constexpr size_t kLeastSecretBytes = 16;
constexpr size_t kMostFileBytes = 4096;
// Precedes the nonce. No text begins with this first byte.
constexpr absl::string_view kMagic("\x01LS1", 4);
constexpr size_t kHeaderBytes = 4 + kNonceBytes;

absl::Status NotOfThisJob(absl::string_view key, absl::string_view why) {
  return absl::PermissionDeniedError(absl::StrCat("\"", key, "\" was not written by a rank of this job: it is ", why));
}

absl::Status FileError(int error) {
  const std::string text = strerror(error);
  return error == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
}

absl::Status CheckFile(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return FileError(errno);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("this is not a regular file");
  if (info.st_mode & (S_IROTH | S_IWOTH)) {
    return absl::PermissionDeniedError(absl::StrCat("every user of this host may ",
                                                    info.st_mode & S_IROTH ? "read" : "write",
                                                    " it, so it is not a secret: chmod o= the file"));
  }
  if (info.st_size == 0) return absl::InvalidArgumentError("the file is empty");
  if (info.st_size > static_cast<off_t>(kMostFileBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the file has ", info.st_size, " bytes, expected at most ", kMostFileBytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadOpenFile(int fd) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFile(fd));
  std::string text(kMostFileBytes, '\0');
  const ssize_t size = read(fd, &text[0], text.size());
  if (size < 0) return FileError(errno);
  text.resize(size);
  return text;
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  // Without O_NONBLOCK a pipe without a writer would block here.
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd.valid() ? ReadOpenFile(fd.get()) : FileError(errno);
}

absl::StatusOr<JobSecret> FromFile(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  return JobSecret::FromText(text);
}

}  // namespace

JobSecret::JobSecret(std::string key) : key_(std::move(key)), seal_key_(HmacSha256(key_, "lockstep seal")) {}

absl::StatusOr<JobSecret> JobSecret::FromText(absl::string_view text) {
  const absl::string_view secret = absl::StripAsciiWhitespace(text);
  if (secret.size() < kLeastSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a job secret of ", secret.size(), " bytes, expected at least ",
                                                   kLeastSecretBytes, ", such as `openssl rand -hex 32` prints"));
  }
  return JobSecret(HmacSha256(secret, "lockstep job secret"));
}

std::string JobSecret::Seal(absl::string_view key, absl::string_view value) const {
  const std::string nonce = RandomBytes(kNonceBytes);
  return absl::StrCat(kMagic, nonce, Encrypt(seal_key_, nonce, key, value));
}

absl::StatusOr<std::string> JobSecret::Open(absl::string_view key, absl::string_view sealed) const {
  if (!IsSealed(sealed)) return NotOfThisJob(key, "not sealed with a job secret");
  std::optional<std::string> value =
      Decrypt(seal_key_, sealed.substr(kMagic.size(), kNonceBytes), key, sealed.substr(kHeaderBytes));
  if (value) return *std::move(value);
  return NotOfThisJob(key, "sealed with another job secret, or was changed");
}

JobSecret JobSecret::Derive(absl::string_view label) const {
  return JobSecret(HmacSha256(key_, absl::StrCat("lockstep derive ", label)));
}

std::string JobSecret::DeriveKey(absl::string_view label) const {
  return HmacSha256(key_, absl::StrCat("lockstep key ", label));
}

bool IsSealed(absl::string_view text) {
  return absl::StartsWith(text, kMagic) && text.size() >= kHeaderBytes + kTagBytes;
}

std::optional<std::string> ProcessVariable(absl::string_view name) {
  const char* value = getenv(std::string(name).c_str());
  return value ? std::make_optional<std::string>(value) : std::nullopt;
}

absl::StatusOr<std::optional<JobSecret>> ReadJobSecret(const VariableLookup& lookup) {
  const auto text = lookup(kJobSecretVariable);
  const auto path = lookup(kJobSecretFileVariable);
  if (!text && !path) return std::nullopt;
  if (text && path) {
    return absl::InvalidArgumentError(absl::StrCat("environment variables ", kJobSecretVariable, " and ",
                                                   kJobSecretFileVariable, " are both set, expected one of them"));
  }
  const auto secret = text ? JobSecret::FromText(*text) : FromFile(*path);
  if (secret.ok()) return std::optional<JobSecret>(*secret);
  return Annotate(secret.status(), text ? absl::StrCat("environment variable ", kJobSecretVariable)
                                        : absl::StrCat("environment variable ", kJobSecretFileVariable, "=", *path));
}

}  // namespace lockstep::crypto
