#include "lockstep/ddp/hooks/internal/orthogonalize.h"

#include <torch/torch.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lockstep::ddp::hooks::internal {
namespace {

at::Tensor Random(int64_t rows, int64_t columns, at::ScalarType dtype = at::kFloat) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(7), dtype);
}

double Distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Orthogonalize, GivesAnOrthonormalBasisOfTheColumns) {
  for (const int64_t columns : {1, 2, 3, 5}) {
    SCOPED_TRACE(absl::StrCat(columns, " columns"));
    const at::Tensor given = Random(9, columns), basis = given.clone();
    Orthogonalize(basis, 0);
    EXPECT_LT(Distance(basis.t().mm(basis), at::eye(columns)), 1e-6);
    EXPECT_LT(Distance(basis.mm(basis.t().mm(given)), given), 1e-5);
  }
}

TEST(Orthogonalize, WorksIn16Bits) {
  const at::Tensor basis = Random(9, 3, at::kBFloat16);
  Orthogonalize(basis, 0);
  const at::Tensor wide = basis.to(at::kFloat);
  EXPECT_LT(Distance(wide.t().mm(wide), at::eye(3)), 0.02);
}

TEST(Orthogonalize, MakesADependentColumnOrthogonalOrZero) {
  const at::Tensor column = Random(9, 1);
  const at::Tensor basis = at::cat({column, column * 0.3}, 1);
  Orthogonalize(basis, 0);
  EXPECT_NEAR(basis.select(1, 0).norm().item<double>(), 1, 1e-6);
  EXPECT_NEAR(basis.select(1, 0).dot(basis.select(1, 1)).item<double>(), 0, 1e-6);
}

TEST(Orthogonalize, LeavesZerosZeros) {
  for (const double epsilon : {0.0, 1e-8}) {
    const at::Tensor zeros = at::zeros({4, 2});
    Orthogonalize(zeros, epsilon);
    EXPECT_TRUE(zeros.equal(at::zeros({4, 2})));
  }
}

TEST(Orthogonalize, AddsEpsilonToTheNorm) {
  const at::Tensor column = at::full({4, 1}, 1.0);
  Orthogonalize(column, 2);
  EXPECT_LT(Distance(column, at::full({4, 1}, 0.25)), 1e-7);
}

TEST(RestartUselessColumns, ReplacesZerosAndWhatIsNotFinite) {
  const at::Tensor matrix = at::full({2, 4}, 5.0), start = at::full({2, 4}, 7.0);
  matrix.select(1, 1).zero_();
  matrix[0][2] = std::numeric_limits<float>::quiet_NaN();
  matrix[1][3] = std::numeric_limits<float>::infinity();
  RestartUselessColumns(matrix, start);
  EXPECT_TRUE(matrix.equal(at::tensor({5.0f, 7.0f, 7.0f, 7.0f}).expand({2, 4})));
}

}  // namespace
}  // namespace lockstep::ddp::hooks::internal
