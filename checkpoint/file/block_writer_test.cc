#include "lockstep/checkpoint/file/block_writer.h"

#include <fcntl.h>

#include <cerrno>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint::file {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

constexpr size_t kBlock = size_t{4} << 20;
constexpr int kBlocks = 64;

enum Way { kPageCache = 0, kDirect = 1 };

// Keeps of each write its first bytes and its way, and takes as long as `cost` says.
class TimedFileSystem final : public FileSystem {
 public:
  using Cost = std::function<absl::Duration(size_t number, Way way)>;
  explicit TimedFileSystem(Cost cost) : cost_(std::move(cost)) {}

  int SetFlags(int, int flags) override {
    ++set_flags;
    if (refuses && flags != 0) {
      errno = EINVAL;
      return -1;
    }
    way_ = (flags & O_DIRECT) != 0 ? kDirect : kPageCache;
    return 0;
  }

  ssize_t Write(int, const void* from, size_t count, off_t offset) override {
    EXPECT_EQ(offset, static_cast<off_t>(ways.size() * kBlock));
    EXPECT_EQ(count, kBlock);
    numbers.push_back(static_cast<const unsigned char*>(from)[kBlock - 1]);
    absl::SleepFor(cost_(ways.size(), way_));
    ways.push_back(way_);
    return static_cast<ssize_t>(count);
  }

  bool refuses = false;
  int set_flags = 0;
  std::vector<Way> ways;
  std::vector<int> numbers;

 private:
  const Cost cost_;
  Way way_ = kPageCache;
};

void WriteBlocks(TimedFileSystem& system, bool flushed) {
  BlockWriter writer(system, /*file=*/-1, flushed);
  for (int i = 0; i < kBlocks; ++i) {
    const std::string block(kBlock, static_cast<char>(i));
    ASSERT_EQ(writer.Append(block.data(), block.size()), absl::OkStatus());
  }
  ASSERT_EQ(writer.Finish(), absl::OkStatus());
  std::vector<int> all(kBlocks);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(system.numbers, all);
}

int DirectOf(const TimedFileSystem& system, size_t begin, size_t end) {
  return std::accumulate(system.ways.begin() + begin, system.ways.begin() + end, 0);
}

TEST(BlockWriter, WritesAFileThatIsFlushedPastThePageCache) {
  TimedFileSystem system([](size_t, Way) { return absl::ZeroDuration(); });
  WriteBlocks(system, /*flushed=*/true);
  EXPECT_THAT(system.ways, Each(kDirect));
}

TEST(BlockWriter, WritesPastAPageCacheThatIsSlower) {
  TimedFileSystem system([](size_t, Way way) { return absl::Milliseconds(way == kDirect ? 1 : 20); });
  WriteBlocks(system, /*flushed=*/false);
  EXPECT_THAT(DirectOf(system, 0, kBlocks), AllOf(Ge(kBlocks * 3 / 4), Le(kBlocks - 1)));
}

TEST(BlockWriter, WritesIntoThePageCacheIfThatIsFasterAndTriesTheDiskRarely) {
  TimedFileSystem system([](size_t, Way way) { return absl::Milliseconds(way == kDirect ? 40 : 2); });
  WriteBlocks(system, /*flushed=*/false);
  EXPECT_THAT(DirectOf(system, 0, kBlocks), AllOf(Ge(1), Le(3)));
}

TEST(BlockWriter, NoticesThatThePageCacheHasBecomeSlower) {
  TimedFileSystem system([](size_t number, Way way) {
    if (way == kDirect) return absl::Milliseconds(5);
    return absl::Milliseconds(number < kBlocks / 2 ? 2 : 50);
  });
  WriteBlocks(system, /*flushed=*/false);
  EXPECT_LE(DirectOf(system, 0, kBlocks / 2), kBlocks / 4);
  EXPECT_GE(DirectOf(system, kBlocks / 2, kBlocks), kBlocks / 4);
}

TEST(BlockWriter, AsksAFileSystemThatRefusesODirectOnce) {
  TimedFileSystem system([](size_t, Way) { return absl::Milliseconds(2); });
  system.refuses = true;
  WriteBlocks(system, /*flushed=*/false);
  EXPECT_THAT(system.ways, Each(kPageCache));
  EXPECT_EQ(system.set_flags, 1);
}

}  // namespace
}  // namespace lockstep::checkpoint::file
