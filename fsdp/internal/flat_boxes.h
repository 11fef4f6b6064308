// Boxes of an interval of a tensor's elements, for formats whose parts of tensors are boxes. Pure.

#ifndef LOCKSTEP_FSDP_INTERNAL_FLAT_BOXES_H_
#define LOCKSTEP_FSDP_INTERNAL_FLAT_BOXES_H_

#include <cstdint>
#include <vector>

#include "lockstep/checkpoint/sharded/box.h"

namespace lockstep::fsdp::internal {

// A box whose elements are consecutive. `begin`: the place of the first one among the tensor's elements.
struct FlatBox {
  checkpoint::Box box;
  int64_t begin = 0;
};

// Cuts the elements [begin, end), in row-major order, of a tensor of `sizes` into boxes, in their order. There are at
// most 2 d - 1 of them for d dimensions, and none if the interval is empty. Requires: 0 <= begin <= end <= the number
// of elements.
std::vector<FlatBox> BoxesOf(const std::vector<int64_t>& sizes, int64_t begin, int64_t end);

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_FLAT_BOXES_H_
