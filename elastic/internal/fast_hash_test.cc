#include "lockstep/elastic/internal/fast_hash.h"

#include <random>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::elastic::internal {
namespace {

std::string RandomBytes(size_t size) {
  std::mt19937 random(5);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

uint64_t Hash(const std::string& bytes) { return FastHash(bytes.data(), bytes.size()); }

TEST(FastHash, ChangesWithEveryBit) {
  for (const size_t size : {1, 7, 8, 63, 64, 65, 200}) {
    std::string bytes = RandomBytes(size);
    std::set<uint64_t> hashes = {Hash(bytes)};
    for (size_t bit = 0; bit < size * 8; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      hashes.insert(Hash(bytes));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    }
    EXPECT_EQ(hashes.size(), size * 8 + 1) << size;
  }
}

// A multiplication alone loses changes of the highest bit, if there are two in a lane.
TEST(FastHash, ChangesWithTheSignsOfAllNumbers) {
  std::string bytes = RandomBytes(256), negated = bytes;
  for (size_t i = 7; i < negated.size(); i += 8) negated[i] = static_cast<char>(negated[i] ^ 0x80);
  EXPECT_NE(Hash(bytes), Hash(negated));
}

TEST(FastHash, ChangesWithSizeAndOrder) {
  std::set<uint64_t> hashes;
  for (size_t size = 0; size <= 130; ++size) hashes.insert(Hash(std::string(size, '\0')));
  EXPECT_EQ(hashes.size(), 131);
  const std::string a = RandomBytes(64), b = RandomBytes(128).substr(64);
  EXPECT_NE(Hash(a + b), Hash(b + a));
  EXPECT_NE(CombineHashes(1, 2), CombineHashes(2, 1));
}

}  // namespace
}  // namespace lockstep::elastic::internal
