// Compares with LibTorch at the sizes where its algorithm changes.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/sampler/torch_permutation.h"

namespace lockstep::sampler {
namespace {

class WherePyTorchsAlgorithmChanges : public testing::TestWithParam<int64_t> {};

TEST_P(WherePyTorchsAlgorithmChanges, EveryIndexIsPyTorchs) {
  const int64_t size = GetParam();
  const at::Tensor expected = at::randperm(size, at::detail::createCPUGenerator(123), at::TensorOptions(at::kLong));
  const int64_t* const values = expected.data_ptr<int64_t>();
  TorchPermutation permutation(size, 123);
  EXPECT_EQ(permutation(0), values[0]);
  std::vector<int64_t> part(1 << 20);
  for (int64_t first = 0; first < size; first += part.size()) {
    const int64_t count = std::min<int64_t>(part.size(), size - first);
    permutation.Fill(first, 1, count, part.data());
    ASSERT_TRUE(std::equal(part.begin(), part.begin() + count, values + first)) << "after position " << first;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WherePyTorchsAlgorithmChanges, testing::Values(214748363, 214748364));

}  // namespace
}  // namespace lockstep::sampler
