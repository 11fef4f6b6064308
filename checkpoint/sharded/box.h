// Rectangular parts of a tensor.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_BOX_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_BOX_H_

#include <cstdint>
#include <vector>

namespace lockstep::checkpoint {

// The range offsets[d] to offsets[d] + sizes[d] in each dimension d. A tensor without dimensions has one box, without
// dimensions, which contains its only element.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
};

inline bool operator==(const Box& a, const Box& b) { return a.offsets == b.offsets && a.sizes == b.sizes; }

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_BOX_H_
