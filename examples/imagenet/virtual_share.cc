#include "lockstep/examples/imagenet/virtual_share.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/comm/tree_sum/sum_tree.h"

namespace lockstep::examples::imagenet {

absl::StatusOr<VirtualShare> ShareOf(int virtual_ranks, int rank, int ranks) {
  if (virtual_ranks == 0) return VirtualShare{ranks, rank, rank + 1};
  if (virtual_ranks < ranks) {
    return FlagError("virtual-ranks", virtual_ranks, absl::StrCat("0, or at least the ", ranks, " ranks"));
  }
  const std::vector<int> bounds = comm::EvenBounds(virtual_ranks, ranks);
  return VirtualShare{virtual_ranks, bounds[rank], bounds[rank + 1]};
}

}  // namespace lockstep::examples::imagenet
