#ifndef LOCKSTEP_DDP_BUCKET_LAYOUT_H_
#define LOCKSTEP_DDP_BUCKET_LAYOUT_H_

#include <string>
#include <vector>

namespace lockstep::ddp {

// The names of each bucket's parameters, in their order in the bucket; the buckets are in the order in which they are
// reduced. Plain strings, so that a checkpoint in any format can hold it.
using BucketLayout = std::vector<std::vector<std::string>>;

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_BUCKET_LAYOUT_H_
