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

}  // namespace
}  // namespace lockstep::models
