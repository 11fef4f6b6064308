#ifndef LOCKSTEP_DDP_BUCKET_LAYOUT_H_
#define LOCKSTEP_DDP_BUCKET_LAYOUT_H_

#include <string>
#include <vector>

namespace lockstep::ddp {

// For each bucket, the names of its parameters in their order in the bucket. Buckets are in the order in which they are
// reduced. These are plain strings, so that any checkpoint format can store them.
using BucketLayout = std::vector<std::vector<std::string>>;

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_BUCKET_LAYOUT_H_
