#include "lockstep/ddp/internal/kernels.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>

#include <limits>

#include "gtest/gtest.h"

namespace lockstep::ddp::internal {
namespace {

at::Tensor Numbers(at::ScalarType dtype) {
  return at::randn({7, 33, 5}, at::detail::createCPUGenerator(1), at::kDouble).to(dtype);
}

TEST(Scale, RoundsAsTheOperatorDoes) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double factor : {1.0, 1.0 / 2, 1.0 / 3, 1.0 / 7}) {
      const at::Tensor in = Numbers(dtype);
      for (const at::Tensor& from : {in, in.transpose(0, 2), in.slice(1, 0, 33, 2)}) {
        at::Tensor expected = at::empty_like(from), out = at::empty_like(from);
        at::mul_out(expected, from, at::native::wrapped_scalar_tensor(factor));
        Scale(out, from, factor);
        EXPECT_TRUE(out.equal(expected)) << dtype << " " << factor;
        at::Tensor contiguous = at::empty(from.sizes(), from.options());
        Scale(contiguous, from, factor);
        EXPECT_TRUE(contiguous.equal(expected));
      }
      const at::Tensor in_place = in.clone();
      Scale(in_place, in_place, factor);
      EXPECT_TRUE(in_place.equal(in * factor));
    }
  }
}

TEST(Copy, CopiesWhateverTheLayouts) {
  const at::Tensor in = Numbers(at::kFloat);
  for (const at::Tensor& from : {in, in.transpose(0, 2), in.slice(1, 0, 33, 2), in.to(at::kDouble)}) {
    const at::Tensor out = at::empty(from.sizes(), at::kFloat);
    Copy(out, from);
    EXPECT_TRUE(out.equal(from.to(at::kFloat)));
  }
}

TEST(HasNonFinite, FindsOneOfManyAndNothingElse) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kComplexFloat}) {
    at::Tensor numbers = Numbers(dtype);
    numbers.view(-1)[0] = c10::isComplexType(dtype) ? 1e30 : dtype == at::kHalf ? 65504.0 : 3e38;
    EXPECT_FALSE(HasNonFinite(numbers)) << dtype;
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      for (const int64_t where : {int64_t{0}, int64_t{500}, numbers.numel() - 1}) {
        at::Tensor spoilt = numbers.clone();
        spoilt.view(-1)[where] = bad;
        EXPECT_TRUE(HasNonFinite(spoilt)) << dtype << " " << bad << " " << where;
        EXPECT_TRUE(HasNonFinite(spoilt.transpose(0, 2)));
      }
    }
    EXPECT_FALSE(HasNonFinite(numbers.slice(0, 0, 0)));
  }
  EXPECT_FALSE(HasNonFinite(at::full({3}, 1 << 30, at::kInt)));
}

}  // namespace
}  // namespace lockstep::ddp::internal
