// With --config=cuda: what LibTorch loads when it needs it.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TorchCuda, LoadsLinearAlgebra) {
  const at::Tensor matrix = at::eye(3, at::kCUDA) * 4;
  EXPECT_TRUE(at::linalg_cholesky(matrix).equal(at::eye(3, at::kCUDA) * 2));
}

TEST(TorchCuda, LoadsTheCompilerOfKernels) {
  const at::Tensor twelve = at::full({5}, 12, at::TensorOptions(at::kCUDA).dtype(at::kLong));
  EXPECT_TRUE(at::gcd(twelve, at::full_like(twelve, 18)).equal(at::full_like(twelve, 6)));
}

}  // namespace
}  // namespace lockstep
