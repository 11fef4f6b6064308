#include "lockstep/ddp/hooks/internal/orthogonalize.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/where.h>
#include <c10/core/ScalarType.h>

#include <tuple>

namespace lockstep::ddp::hooks::internal {
namespace {

// A column of zeros stays as it is: 0 / 0 would reach every parameter of the bucket.
void Normalize(const at::Tensor& column, double epsilon) {
  const at::Tensor norm = column.norm();
  column.div_(epsilon == 0 ? norm : norm + epsilon).masked_fill_(norm == 0, 0);
}

void GramSchmidt(const at::Tensor& matrix, double epsilon) {
  const int64_t columns = matrix.size(1);
  for (int64_t i = 0; i < columns; ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    Normalize(column, epsilon);
    if (i > 0) {
      // If a column depends on the previous ones, only rounding errors in arbitrary directions remain. After
      // normalisation they must be projected again; otherwise the product with the other columns counts their common
      // part twice.
      const at::Tensor before = matrix.narrow(1, 0, i);
      column.sub_(before.mm(before.t().mm(column)));
      Normalize(column, epsilon);
    }
    if (i + 1 == columns) break;
    const at::Tensor rest = matrix.narrow(1, i + 1, columns - i - 1);
    rest.sub_(column * (column * rest).sum(0, /*keepdim=*/true));
  }
}

}  // namespace

void Orthogonalize(const at::Tensor& matrix, double epsilon) {
  // QR is faster from three columns on. LibTorch does not have it for 16 bits.
  if (matrix.size(1) <= 2 || c10::isReducedFloatingType(matrix.scalar_type())) {
    GramSchmidt(matrix, epsilon);
  } else {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
  }
}

void RestartUselessColumns(const at::Tensor& matrix, const at::Tensor& start) {
  const at::Tensor norm = matrix.norm(2, /*dim=*/{0}, /*keepdim=*/true);
  matrix.copy_(at::where((norm > 0).logical_and_(norm.isfinite()), matrix, start));
}

}  // namespace lockstep::ddp::hooks::internal
