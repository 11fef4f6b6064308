#include "lockstep/models/transformer/matrix_flops.h"

#include "gtest/gtest.h"

namespace lockstep::models {
namespace {

// The range is wider than that of machines: units may not be wrong. A second measurement would differ in some digit.
TEST(MatrixFlops, IsMeasuredOnce) {
  EXPECT_GT(MatrixFlops(), 2e8);
  EXPECT_LT(MatrixFlops(), 1e14);
  EXPECT_EQ(MatrixFlops(), MatrixFlops());
}

TEST(MatrixFlops, IsTheDtypes) {
  const double half = MatrixFlops(at::kBFloat16);
  EXPECT_GT(half, 1e7);  // some processors have no instructions for it
  EXPECT_LT(half, 1e15);
  EXPECT_NE(half, MatrixFlops(at::kFloat));
}

}  // namespace
}  // namespace lockstep::models
