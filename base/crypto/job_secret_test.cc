#include "lockstep/base/crypto/job_secret.h"

#include <sys/stat.h>

#include <fstream>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::crypto {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kText[] = "0123456789abcdef";

JobSecret Secret(absl::string_view text = kText) { return JobSecret::FromText(text).value(); }

absl::StatusOr<std::optional<JobSecret>> Read(const std::map<std::string, std::string>& variables) {
  return ReadJobSecret([&](absl::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

// The path of a file with this text and mode.
std::string File(const std::string& text, mode_t mode) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/secret");
  remove(path.c_str());
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
  return path;
}

absl::Status ReadFile(const std::string& path) { return Read({{kJobSecretFileVariable, path}}).status(); }

TEST(JobSecret, OpensWhatItSealed) {
  for (const std::string& value : {std::string(), std::string("value"), std::string(1 << 20, '\0')}) {
    const std::string sealed = Secret().Seal("key", value);
    EXPECT_EQ(sealed.size(), value.size() + 32);
    EXPECT_TRUE(IsSealed(sealed));
    EXPECT_EQ(Secret().Open("key", sealed).value(), value);
  }
}

TEST(JobSecret, DoesNotShowTheValueNorWhetherTwoAreEqual) {
  const std::string sealed = Secret().Seal("key", "the value");
  EXPECT_THAT(sealed, Not(HasSubstr("value")));
  EXPECT_NE(sealed, Secret().Seal("key", "the value"));
}

TEST(JobSecret, RefusesWhatAnotherSecretOrNoneSealedNamingTheKey) {
  const std::string start = "\"a/b\" was not written by a rank of this job: it is ";
  const absl::Status other = absl::PermissionDeniedError(start + "sealed with another job secret, or was changed");
  EXPECT_EQ(Secret().Open("a/b", Secret("another secret of 16").Seal("a/b", "x")).status(), other);
  EXPECT_EQ(Secret().Open("a/b", Secret().Derive("one").Seal("a/b", "x")).status(), other);
  EXPECT_EQ(Secret().Open("a/b", Secret().Seal("a/c", "x")).status(), other);
  const absl::Status none = absl::PermissionDeniedError(start + "not sealed with a job secret");
  for (const std::string& text : {std::string(), std::string("x"), std::string(100000, '\xff')}) {
    EXPECT_EQ(Secret().Open("a/b", text).status(), none);
  }
}

TEST(JobSecret, RefusesEveryValueOfWhichABitWasChanged) {
  const std::string sealed = Secret().Seal("key", "value");
  for (size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(Secret().Open("key", changed).status().code(), absl::StatusCode::kPermissionDenied) << bit;
  }
  for (size_t size = 0; size < sealed.size(); ++size) {
    EXPECT_EQ(Secret().Open("key", sealed.substr(0, size)).status().code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST(JobSecret, DerivesOthersByLabel) {
  EXPECT_EQ(Secret().Derive("a").Open("key", Secret().Derive("a").Seal("key", "x")).value(), "x");
  EXPECT_FALSE(Secret().Derive("b").Open("key", Secret().Derive("a").Seal("key", "x")).ok());
}

TEST(ReadJobSecret, ReadsTheVariableOrTheFileWithoutTheWhiteSpaceAroundIt) {
  EXPECT_EQ(*Read({}), std::nullopt);
  const std::string sealed = Secret().Seal("key", "x");
  EXPECT_EQ(Read({{kJobSecretVariable, kText}}).value()->Open("key", sealed).value(), "x");
  const std::string path = File(absl::StrCat(kText, "\n"), 0600);
  EXPECT_EQ(Read({{kJobSecretFileVariable, path}}).value()->Open("key", sealed).value(), "x");
}

TEST(ReadJobSecret, RefusesWhatIsNotASecretWithoutShowingIt) {
  EXPECT_EQ(
      Read({{kJobSecretVariable, "0123456789abcde"}}).status(),
      absl::InvalidArgumentError("environment variable LOCKSTEP_JOB_SECRET: a job secret of 15 bytes, expected at "
                                 "least 16, such as `openssl rand -hex 32` prints"));
  EXPECT_EQ(Read({{kJobSecretVariable, ""}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      Read({{kJobSecretVariable, kText}, {kJobSecretFileVariable, "/a"}}).status(),
      absl::InvalidArgumentError("environment variables LOCKSTEP_JOB_SECRET and LOCKSTEP_JOB_SECRET_FILE are both "
                                 "set, expected one of them"));
}

TEST(ReadJobSecret, RefusesAFileThatIsNoSecretNamingIt) {
  const std::string path = File(kText, 0604);
  const std::string name = absl::StrCat("environment variable LOCKSTEP_JOB_SECRET_FILE=", path, ": ");
  EXPECT_EQ(ReadFile(path),
            absl::PermissionDeniedError(
                absl::StrCat(name, "every user of this host may read it, so it is not a secret: chmod o= the file")));
  EXPECT_EQ(ReadFile(File(kText, 0602)).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReadFile(File(kText, 0640)), absl::OkStatus());
  EXPECT_EQ(ReadFile(File("", 0600)), absl::InvalidArgumentError(name + "the file is empty"));
  EXPECT_EQ(ReadFile(File(std::string(4096, 'x'), 0600)), absl::OkStatus());
  EXPECT_EQ(ReadFile(File(std::string(4097, 'x'), 0600)),
            absl::InvalidArgumentError(name + "the file has 4097 bytes, expected at most 4096"));
  EXPECT_THAT(ReadFile(File("short\n", 0600)).message(), HasSubstr("a job secret of 5 bytes"));
  EXPECT_EQ(ReadFile("/no/such/file").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadFile("/dev/zero").message(), HasSubstr("this is not a regular file"));
}

}  // namespace
}  // namespace lockstep::crypto
