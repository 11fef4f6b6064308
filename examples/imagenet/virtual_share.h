// The virtual ranks of a rank: see ddp::Options::virtual_ranks.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_VIRTUAL_SHARE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_VIRTUAL_SHARE_H_

#include "absl/status/statusor.h"

namespace lockstep::examples::imagenet {

// A rank trains for the virtual ranks [first, last) of `all`. Without --virtual-ranks each rank is its only one.
struct VirtualShare {
  int all = 1;
  int first = 0;
  int last = 1;
};

// `virtual_ranks` is the flag's value. FlagError: it is not 0, and there are more ranks.
absl::StatusOr<VirtualShare> ShareOf(int virtual_ranks, int rank, int ranks);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_VIRTUAL_SHARE_H_
