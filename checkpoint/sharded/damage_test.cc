// Checkpoints with a bit turned or an end cut off are refused by name, or are the same.

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/sharded/load_whole.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

constexpr char kGolden[] = "checkpoint/sharded/testdata/dtensor";

// A checkpoint that a test may damage: two ranks', as Python wrote it.
class Damage : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    std::filesystem::copy(kGolden, directory_);
    std::ostringstream contents;
    contents << std::ifstream(path_, std::ios::binary).rdbuf();
    whole_ = contents.str();
    ASSERT_GT(whole_.size(), 1000);
  }

  void Write(const std::string& contents) {
    std::filesystem::remove(path_);  // it may be a copy of a read-only file
    std::ofstream(path_, std::ios::binary).write(contents.data(), contents.size());
  }

  const std::string directory_ = testing::TempDir() + "/damage" + GetParam();
  const std::string path_ = directory_ + "/" + GetParam();
  std::string whole_;
};

TEST_P(Damage, EveryTruncationIsRefusedByName) {
  const size_t step = whole_.size() > 4000 ? 61 : 1;
  for (size_t size = 0; size < whole_.size(); size += step) {
    Write(whole_.substr(0, size));
    const auto loaded = LoadWhole(directory_);
    ASSERT_FALSE(loaded.ok()) << size;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(path_));
  }
}

// Whether every tensor of `loaded` that has a name of `expected` has its numbers too.
bool Agrees(const Value& loaded, const Value& expected) {
  for (const auto& [name, value] : loaded.entries()) {
    const Value* same = expected.Find(name);
    if (same != nullptr && value.is_tensor() && !Identical(value, *same)) return false;
  }
  return true;
}

// .metadata has no checksum of its own: a name in it may become another name. But never other numbers under a name.
TEST_P(Damage, NoTurnedBitChangesNumbers) {
  const auto expected = LoadWhole(directory_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::mt19937 random(0);
  int refused = 0;
  const size_t step = whole_.size() > 4000 ? 7 : 1;
  for (size_t at = 0; at < whole_.size(); at += step) {
    std::string changed = whole_;
    changed[at] ^= 1 << random() % 8;
    Write(changed);
    const auto loaded = LoadWhole(directory_);
    if (loaded.ok()) {
      EXPECT_TRUE(Agrees(*loaded, *expected)) << "byte " << at;
      continue;
    }
    ++refused;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(directory_));
  }
  EXPECT_GT(refused, 100);
}

INSTANTIATE_TEST_SUITE_P(Files, Damage, testing::Values(".metadata", "__0_0.distcp"),
                         [](const auto& info) { return info.param[0] == '.' ? "Metadata" : "Data"; });

}  // namespace
}  // namespace lockstep::checkpoint
