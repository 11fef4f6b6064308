#ifndef LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIECE_H_
#define LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIECE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "lockstep/comm/hierarchical/internal/exchange.h"
#include "lockstep/comm/hierarchical/internal/levels.h"
#include "lockstep/comm/hierarchical/internal/links.h"
#include "lockstep/comm/hierarchical/internal/pieces.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::hierarchical::internal {

// A call of a Pipeline.
struct Call {
  std::vector<at::Tensor> tensors;  // of an all_reduce, flat
  c10d::ReduceOp op;                // never AVG
  bool average = false;
  std::unique_ptr<Exchange> exchange;  // null for an all_reduce
  uint64_t number = 0;
  bool done = false;  // guarded by the pipeline's mutex
};

// A part of a call, on its way through the phases.
struct Piece {
  // Which elements this rank exchanges with its column, and how they reach the other ranks of the host.
  enum class Way {
    kWhole,      // every rank has the sum of its host, and exchanges all of it
    kParts,      // each rank has a part
    kFirstRank,  // the host's first rank has the sum
  };

  std::shared_ptr<Call> call;
  Way way = Way::kWhole;
  at::Tensor data;     // flat
  at::Tensor rest;     // the tensor's elements of which `data` is a padded copy; usually undefined
  at::Tensor part;     // what this rank exchanges
  bool direct = true;  // each host sends all of `part` to each; otherwise each host reduces a share of it
  bool ends_call = false;
  uint64_t number = 0;  // of an all_reduce: counts the pieces of all calls, from 1 on
  PieceHeader header;   // without bytes
  shm::ReduceFunction reduce = nullptr;

  char* At(int64_t element) const {
    return static_cast<char*>(part.data_ptr()) + element * static_cast<int64_t>(part.element_size());
  }
  // The elements that rank `index` of the column reduces.
  Range Share(int index, int shares) const {
    return direct ? Range{0, part.numel()} : ShareOf(part.numel(), index, shares);
  }
  PieceHeader HeaderFor(Range range) const {
    PieceHeader with_bytes = header;
    with_bytes.bytes = range.count * part.element_size();
    return with_bytes;
  }
};

// Returns whether a tensor is exchanged whole (kSmallBytes).
bool IsSmall(const at::Tensor& tensor);

// Returns the piece of an all_reduce that has the elements of `range` of a flat tensor.
Piece MakePiece(const Levels& levels, const std::shared_ptr<Call>& call, const at::Tensor& tensor, Range range);

}  // namespace lockstep::comm::hierarchical::internal

#endif  // LOCKSTEP_COMM_HIERARCHICAL_INTERNAL_PIECE_H_
