#include "lockstep/sampler/torch_permutation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <limits>
#include <new>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::sampler {
namespace {

std::vector<int64_t> PyTorchs(int64_t size, uint64_t seed) {
  const at::Tensor order = at::randperm(size, at::detail::createCPUGenerator(seed), at::TensorOptions(at::kLong));
  return {order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + size};
}

std::vector<int64_t> Filled(TorchPermutation& permutation, int64_t first, int64_t stride, int64_t count) {
  std::vector<int64_t> indices(count);
  permutation.Fill(first, stride, count, indices.data());
  return indices;
}

std::vector<int64_t> Whole(TorchPermutation permutation) { return Filled(permutation, 0, 1, permutation.size()); }

TEST(TorchPermutation, GivesPyTorchsOrderForEverySize) {
  for (int64_t size = 1; size < 400; ++size) {
    EXPECT_EQ(Whole(TorchPermutation(size, size + 5)), PyTorchs(size, size + 5)) << size;
  }
  EXPECT_EQ(Whole(TorchPermutation(100003, 1)), PyTorchs(100003, 1));
}

TEST(TorchPermutation, TakesSeedsAsPyTorchDoes) {
  for (const int64_t seed :
       {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{-12345}, int64_t{1} << 31, int64_t{1} << 32,
        (int64_t{7} << 40) + 3, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(Whole(TorchPermutation(1000, seed)), PyTorchs(1000, seed)) << seed;
  }
}

TEST(TorchPermutation, GivesTheSameInWhateverOrderItIsAsked) {
  const std::vector<int64_t> expected = PyTorchs(1000, 3);
  TorchPermutation forwards(1000, 3), backwards(1000, 3), leaping(1000, 3);
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(forwards(i), expected[i]);
    ASSERT_EQ(backwards(999 - i), expected[999 - i]);
    ASSERT_EQ(leaping(i * 7 % 1000), expected[i * 7 % 1000]);
  }
}

TEST(TorchPermutation, FillsAtAnyStride) {
  const std::vector<int64_t> expected = PyTorchs(5000, 3);
  TorchPermutation permutation(5000, 3);
  for (const auto [first, stride, count] : std::vector<std::array<int64_t, 3>>{
           {3, 8, 10}, {0, 1, 0}, {0, 1, 64}, {1, 1, 64}, {7, 333, 15}, {4999, 5000, 1}, {0, 1, 5000}}) {
    const std::vector<int64_t> filled = Filled(permutation, first, stride, count);
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(filled[i], expected[first + i * stride]);
  }
}

TEST(TorchPermutation, CopiesGoOnApart) {
  const std::vector<int64_t> expected = PyTorchs(1000, 9);
  TorchPermutation permutation(1000, 9);
  permutation(299);
  TorchPermutation copy = permutation;
  EXPECT_EQ(Whole(permutation), expected);
  EXPECT_EQ(copy(300), expected[300]);
  TorchPermutation assigned(5, 0);
  assigned = copy;
  EXPECT_EQ(Filled(assigned, 0, 1, 1000), expected);
  TorchPermutation moved = std::move(copy);
  EXPECT_EQ(Filled(moved, 0, 1, 1000), expected);
}

// Shuffles as above, with a map in place of the array.
std::vector<int64_t> SparselyShuffled(int64_t size, uint32_t seed, int64_t count) {
  std::mt19937 generator(seed);
  std::unordered_map<int64_t, int64_t> moved;
  const auto at = [&](int64_t i) -> int64_t& { return moved.emplace(i, i).first->second; };
  std::vector<int64_t> order(count);
  for (int64_t i = 0; i < count; ++i) {
    std::swap(at(i), at(i + generator() % (size - i)));
    order[i] = at(i);
  }
  return order;
}

TEST(TorchPermutation, TheFirstIndicesOfManyEqualASparseShuffles) {
  TorchPermutation permutation(214748363, 17);
  EXPECT_EQ(Filled(permutation, 0, 1, 10), SparselyShuffled(214748363, 17, 10));
}

int64_t ResidentPages() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

TEST(TorchPermutation, TheFirstIndexOfManyTouchesLittleMemory) {
  TorchPermutation permutation(214748363, 17);
  const int64_t before = ResidentPages();
  permutation(0);
  EXPECT_LT(ResidentPages() - before, 2000);  // Two huge pages are 1024, all would be 209716.
}

TEST(TorchPermutation, ThrowsWhereMemoryDoesNotSuffice) {
  EXPECT_THROW(TorchPermutation(int64_t{1} << 62, 0), std::bad_alloc);
  EXPECT_THROW(TorchPermutation((int64_t{1} << 61) + 1, 0), std::bad_alloc);  // 8 bytes each, modulo 2^64, would be 8.
}

}  // namespace
}  // namespace lockstep::sampler
