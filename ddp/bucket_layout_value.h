#ifndef LOCKSTEP_DDP_BUCKET_LAYOUT_VALUE_H_
#define LOCKSTEP_DDP_BUCKET_LAYOUT_VALUE_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/bucket_layout.h"

namespace lockstep::ddp {

// For a checkpoint: {"world_size": 4, "buckets": [["second.bias", "second.weight"], ...]}, which Python reads too.
checkpoint::Value ToValue(const BucketLayout& layout, int world_size);

// The layout, or an empty one if the value is of another number of ranks, whose sums are rounded differently.
// InvalidArgument, naming the key, for a value of another form.
absl::StatusOr<BucketLayout> ToBucketLayout(const checkpoint::Value& value, int world_size);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_BUCKET_LAYOUT_VALUE_H_
