#include "lockstep/comm/hierarchical/internal/piece.h"

#include <ATen/ops/zeros.h>

#include "lockstep/comm/shm/internal/tensors.h"

namespace lockstep::comm::hierarchical::internal {

bool IsSmall(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes; }

Piece MakePiece(const Levels& levels, const std::shared_ptr<Call>& call, const at::Tensor& tensor, Range range) {
  Piece piece;
  piece.call = call;
  piece.data = tensor.narrow(0, range.begin, range.count);
  const int64_t count = range.count, parts = levels.inward->getSize();
  const bool small = IsSmall(tensor);
  if (!levels.even) {
    piece.way = Piece::Way::kFirstRank;
  } else if (small) {
    piece.way = Piece::Way::kWhole;
  } else {
    piece.way = Piece::Way::kParts;
    if (count % parts != 0) {
      piece.rest = piece.data;
      piece.data = at::zeros({(count + parts - 1) / parts * parts}, tensor.options());
      piece.data.narrow(0, 0, count).copy_(piece.rest);
    }
  }
  piece.part = piece.data;
  if (piece.way == Piece::Way::kParts) {
    piece.part = piece.data.view({parts, -1})[levels.inward->getRank()];
  }
  piece.direct = !levels.links || levels.links->size() == 2 || small;
  const shm::DType dtype = shm::internal::DTypeOf(tensor);
  const shm::Op op = shm::internal::OpFor("all_reduce", call->op, tensor);
  piece.reduce = shm::ReduceFunctionFor(dtype, op);
  piece.header.call = call->number;
  piece.header.elements = tensor.numel();
  piece.header.dtype = static_cast<uint16_t>(dtype);
  piece.header.op = static_cast<uint8_t>(op);
  return piece;
}

}  // namespace lockstep::comm::hierarchical::internal
