#include "lockstep/checkpoint/zip/crc32.h"

#include <zlib.h>

#include <algorithm>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::checkpoint::zip {
namespace {

std::string RandomBytes(size_t count, std::mt19937& random) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

uint32_t Zlib(uint32_t crc, const char* from, size_t count) {
  return crc32_z(crc, reinterpret_cast<const Bytef*>(from), count);
}

TEST(ExtendCrc32, HasTheCheckValueOfTheCatalogue) {
  EXPECT_EQ(ExtendCrc32(0, "123456789", 9), 0xcbf43926);
  EXPECT_EQ(ExtendCrc32(0, nullptr, 0), 0);
}

TEST(ExtendCrc32, EqualsZlibForEveryLengthAndAlignment) {
  std::mt19937 random(1);
  const std::string bytes = RandomBytes(5000, random);
  for (size_t count = 0; count < 2000; ++count) {
    const size_t offset = random() % 128;
    const uint32_t crc = random();
    ASSERT_EQ(ExtendCrc32(crc, &bytes[offset], count), Zlib(crc, &bytes[offset], count)) << count << " at " << offset;
  }
}

TEST(ExtendCrc32, EqualsZlibOverMegabytesHoweverTheyAreCut) {
  std::mt19937 random(2);
  const std::string bytes = RandomBytes(5 << 20, random);
  const uint32_t whole = Zlib(0, bytes.data(), bytes.size());
  EXPECT_EQ(ExtendCrc32(0, bytes.data(), bytes.size()), whole);
  uint32_t crc = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t count = std::min<size_t>(random() % 100000, bytes.size() - at);
    crc = ExtendCrc32(crc, &bytes[at], count);
    at += count;
  }
  EXPECT_EQ(crc, whole);
}

TEST(CombineCrc32, GivesTheCrcOfBothParts) {
  std::mt19937 random(3);
  const std::string bytes = RandomBytes(10000, random);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{4096}, size_t{9999}, bytes.size()}) {
    const size_t rest = bytes.size() - cut;
    EXPECT_EQ(CombineCrc32(ExtendCrc32(0, bytes.data(), cut), ExtendCrc32(0, &bytes[cut], rest), rest),
              Zlib(0, bytes.data(), bytes.size()));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint::zip
