#include "lockstep/launch/rendezvous/etcd/signed_text.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace lockstep::launch::etcd {
namespace {

TEST(SignedText, TheSameSecretReadsTheText) {
  const std::string text("line\nbytes\0\xff", 12);
  for (const std::string secret : {"", "a secret"}) {
    const std::string value = SignedText(secret, "job", "key", text);
    EXPECT_EQ(VerifiedText(secret, "job", "key", value).value(), text);
  }
}

// python3 -c 'import hmac; own = hmac.digest(b"s", b"lockstep launch etcd", "sha256");
//             print(hmac.digest(own, b"3:job3:key4:text", "sha256").hex())'
TEST(SignedText, TheSignatureIsAnHmacOfJobKeyAndText) {
  EXPECT_EQ(SignedText("s", "job", "key", "text"),
            "lockstep1 95185d7f45fb9ede874bf6cded33b03fb29f434ecf23969ead3abea689d43e69\ntext");
  EXPECT_EQ(SignedText("", "job", "key", "text"), "lockstep1 -\ntext");
}

TEST(SignedText, EveryDifferenceIsRefused) {
  const std::string value = SignedText("secret", "job", "key", "text");
  EXPECT_TRUE(absl::IsPermissionDenied(VerifiedText("other", "job", "key", value).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(VerifiedText("secret", "other", "key", value).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(VerifiedText("secret", "job", "other", value).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(VerifiedText("secret", "job", "key", value + "x").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(VerifiedText("secret", "jobk", "ey", value).status()));
}

TEST(SignedText, TheErrorSaysWhatIsWrong) {
  const auto error = [](const char* secret, const std::string& value) {
    return std::string(VerifiedText(secret, "job", "/key", value).status().message());
  };
  EXPECT_EQ(error("b", SignedText("a", "job", "/key", "text")),
            "etcd key /key was not written by an agent of this job: it is signed with another job secret");
  EXPECT_EQ(error("", SignedText("a", "job", "/key", "text")),
            "etcd key /key was not written by an agent of this job: it is signed with a job secret, and this agent has "
            "none");
  EXPECT_EQ(error("a", SignedText("", "job", "/key", "text")),
            "etcd key /key was not written by an agent of this job: it is not signed, and this agent has a job secret");
  EXPECT_EQ(error("a", "anything"),
            "etcd key /key was not written by an agent of this job: its value does not begin with a line \"lockstep1 "
            "...\"");
}

}  // namespace
}  // namespace lockstep::launch::etcd
