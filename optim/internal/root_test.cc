#include "lockstep/optim/internal/root.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/optim/internal/kernels.h"

namespace lockstep::optim::internal {
namespace {

// All floats with bits from `first` on.
at::Tensor Floats(int64_t first, int64_t count) { return at::arange(first, first + count, at::kInt).view(at::kFloat); }

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST(Root, HasATensBitsForEveryFloatFromZeroToInfinity) {
  constexpr int64_t kInfinity = int64_t{255} << 23, kCount = 1 << 18;
  for (int64_t first = 0; first <= kInfinity; first += kCount) {
    const at::Tensor numbers = Floats(first, first == kInfinity ? 1 : kCount), roots = at::empty_like(numbers);
    for (int64_t i = 0; i < numbers.numel(); i += 1024) {
      Root(numbers.data_ptr<float>() + i, roots.mutable_data_ptr<float>() + i,
           std::min<int64_t>(1024, numbers.numel() - i));
    }
    ASSERT_TRUE(SameBits(roots, numbers.sqrt())) << "from bits " << first << " on";
  }
}

TEST(Root, TakesNegativeNumbersAndNansBetweenOthers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> numbers = {4, -0.0f, -1, nan, -std::numeric_limits<float>::infinity(), 9, 0, 1e-40f, 16};
  Root(numbers.data(), numbers.data(), static_cast<int64_t>(numbers.size()));
  EXPECT_EQ(numbers[0], 2);
  EXPECT_TRUE(numbers[1] == 0 && std::signbit(numbers[1]));
  for (const int i : {2, 3, 4}) EXPECT_TRUE(std::isnan(numbers[i])) << i;
  EXPECT_EQ(numbers[5], 3);
  EXPECT_EQ(numbers[6], 0);
  EXPECT_EQ(numbers[7], at::scalar_tensor(1e-40f).sqrt().item<float>());
  EXPECT_EQ(numbers[8], 4);
}

TEST(Root, DoesNotDependOnTheNumbersPlace) {
  const at::Tensor numbers = Floats(0x3f900000, 64);
  const at::Tensor expected = numbers.sqrt();
  for (int64_t n = 0; n <= 33; ++n) {
    for (int64_t first = 0; first < 9; ++first) {
      const at::Tensor roots = numbers.clone();
      float* const from = roots.mutable_data_ptr<float>() + first;
      Root(from, from, n);
      EXPECT_TRUE(SameBits(roots.narrow(0, first, n), expected.narrow(0, first, n))) << n << " from " << first;
      EXPECT_TRUE(SameBits(roots.narrow(0, first + n, 64 - first - n), numbers.narrow(0, first + n, 64 - first - n)));
    }
  }
}

TEST(EstimatedRoot, StopsBeforeNumbersWhoseStepsMayOverflowOrBeDenormal) {
  for (const float number : {-1.0f, 0x1p-101f, 0x1.000002p126f, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> numbers(24, 4);
    numbers[21] = number;
    float roots[24] = {};
    EXPECT_EQ(EstimatedRoot(numbers.data(), roots, 24), WidestInstructions() == Instructions::kDefault ? 0 : 16)
        << number;
    EXPECT_EQ(roots[16], 0) << number;
  }
}

// A double's root rounds to the float's.
TEST(KernelFor, RootsRoundCorrectlyWithEachOfTheProcessorsInstructions) {
  const at::Tensor numbers = Floats(0x3f800000, 1 << 24), roots = at::empty_like(numbers);
  const at::Tensor expected = numbers.to(at::kDouble).sqrt().to(at::kFloat);
  for (int level = 0; level <= static_cast<int>(WidestInstructions()); ++level) {
    const float* const from = numbers.data_ptr<float>();
    KernelFor<float>(Op::kSqrt, static_cast<Instructions>(level))(roots.mutable_data_ptr<float>(), from, from, from, 0,
                                                                  numbers.numel());
    EXPECT_TRUE(SameBits(roots, expected)) << "level " << level;
  }
}

}  // namespace
}  // namespace lockstep::optim::internal
