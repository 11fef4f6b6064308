// The published vectors, since encryption that is wrong still decrypts what it encrypted.

#include "lockstep/base/crypto/crypto.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace lockstep::crypto {
namespace {

std::string Bytes(absl::string_view hex) { return absl::HexStringToBytes(hex); }
std::string Hex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

TEST(HmacSha256, GivesTheMacsOfRfc4231) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

// Cases 13 and 16 of McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)", where the tag comes last.
TEST(Encrypt, GivesThePublishedBytesOfGcm) {
  EXPECT_EQ(Hex(Encrypt(std::string(32, '\0'), std::string(12, '\0'), "", "")), "530f8afbc74536b9a963b4f1c4cb738b");
  const std::string key = Bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const std::string nonce = Bytes("cafebabefacedbaddecaf888");
  const std::string context = Bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  const std::string text = Bytes(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657"
      "ba637b39");
  const std::string encrypted = Encrypt(key, nonce, context, text);
  EXPECT_EQ(Hex(encrypted),
            "76fc6ece0f4e1768cddf8853bb2d551b"
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393"
            "ba7a0abcc9f662");
  EXPECT_EQ(Decrypt(key, nonce, context, encrypted), text);
}

TEST(Decrypt, RefusesWhateverIsNotWhatWasEncrypted) {
  const std::string key(32, 'k'), nonce(12, 'n');
  for (const std::string& text : {std::string(), std::string("a"), std::string(100000, 'b')}) {
    const std::string encrypted = Encrypt(key, nonce, "context", text);
    EXPECT_EQ(Decrypt(key, nonce, "context", encrypted), text);
    EXPECT_EQ(Decrypt(std::string(32, 'x'), nonce, "context", encrypted), std::nullopt);
    EXPECT_EQ(Decrypt(key, std::string(12, 'x'), "context", encrypted), std::nullopt);
    EXPECT_EQ(Decrypt(key, nonce, "context2", encrypted), std::nullopt);
    EXPECT_EQ(Decrypt(key, nonce, "context", encrypted + "x"), std::nullopt);
    EXPECT_EQ(Decrypt(key, nonce, "context", encrypted.substr(0, encrypted.size() - 1)), std::nullopt);
    std::string changed = encrypted;
    changed.back() ^= 1;
    EXPECT_EQ(Decrypt(key, nonce, "context", changed), std::nullopt);
  }
  EXPECT_EQ(Decrypt(key, nonce, "context", ""), std::nullopt);
}

TEST(SameBytes, ComparesAll) {
  EXPECT_TRUE(SameBytes("", ""));
  EXPECT_TRUE(SameBytes("abc", "abc"));
  EXPECT_FALSE(SameBytes("abc", "abd"));
  EXPECT_FALSE(SameBytes("abc", "ab"));
}

TEST(RandomBytes, AreAsManyAndDiffer) {
  EXPECT_EQ(RandomBytes(16).size(), 16);
  EXPECT_NE(RandomBytes(16), RandomBytes(16));
}

}  // namespace
}  // namespace lockstep::crypto
