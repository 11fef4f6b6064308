#include "lockstep/comm/shm/heap.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::comm::shm {
namespace {

constexpr size_t kBytes = size_t{16} << 20;

class HeapTest : public ::testing::Test {
 protected:
  HeapTest() : memory_(static_cast<char*>(aligned_alloc(4096, kBytes)), free), heap_(memory_.get(), kBytes) {}
  const std::unique_ptr<char, void (*)(void*)> memory_;
  Heap heap_;
};

TEST_F(HeapTest, AlignsToCacheLinesAndLargeBlocksToHugePages) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(heap_.Allocate(1)) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(heap_.Allocate(65)) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(heap_.Allocate(size_t{3} << 20)) % (size_t{2} << 20), 0U);
}

TEST_F(HeapTest, ReturnsNullWhenThereIsNoRoom) {
  EXPECT_EQ(heap_.Allocate(kBytes + 1), nullptr);
  EXPECT_EQ(heap_.Allocate(SIZE_MAX), nullptr);
  char* const all = heap_.Allocate(kBytes / 2);
  ASSERT_NE(all, nullptr);
  heap_.Free(all);
  EXPECT_EQ(heap_.used_bytes(), 0U);
}

TEST_F(HeapTest, ZeroBytesAreABlockOfTheirOwn) {
  char* const a = heap_.Allocate(0);
  char* const b = heap_.Allocate(0);
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
}

TEST_F(HeapTest, BlocksNeverOverlapAndFreedOnesJoin) {
  std::mt19937 random(3);
  std::map<char*, size_t> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (!blocks.empty() && random() % 2) {
      const auto block = std::next(blocks.begin(), random() % blocks.size());
      for (size_t k = 0; k < block->second; ++k) ASSERT_EQ(block->first[k], static_cast<char>(block->second));
      heap_.Free(block->first);
      blocks.erase(block);
      continue;
    }
    const size_t bytes = 1 + random() % 5000;
    char* const data = heap_.Allocate(bytes);
    ASSERT_NE(data, nullptr);
    memset(data, static_cast<int>(bytes), bytes);
    ASSERT_TRUE(blocks.emplace(data, bytes).second);
  }
  for (const auto& block : blocks) heap_.Free(block.first);
  EXPECT_EQ(heap_.used_bytes(), 0U);
  EXPECT_NE(heap_.Allocate(kBytes - (size_t{4} << 20)), nullptr);
}

TEST(Heap, ReturnsThePagesOfLargeBlocks) {
  const UniqueFd file(memfd_create("heap_test", 0));
  ASSERT_EQ(ftruncate(file.get(), kBytes), 0);
  void* const data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const auto resident = [&file] {
    struct stat status;
    EXPECT_EQ(fstat(file.get(), &status), 0);
    return static_cast<size_t>(status.st_blocks) * 512;
  };
  Heap heap(static_cast<char*>(data), kBytes);
  char* const small = heap.Allocate(100000);
  memset(small, 1, 100000);
  char* const large = heap.Allocate(3 * Heap::kReturned);
  memset(large, 1, 3 * Heap::kReturned);
  EXPECT_GE(resident(), 3 * Heap::kReturned + 100000);
  heap.Free(large);
  EXPECT_LT(resident(), Heap::kReturned);
  EXPECT_EQ(small[99999], 1);
  munmap(data, kBytes);
}

}  // namespace
}  // namespace lockstep::comm::shm
