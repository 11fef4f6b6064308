#ifndef LOCKSTEP_DDP_BUCKET_LAYOUT_VALUE_H_
#define LOCKSTEP_DDP_BUCKET_LAYOUT_VALUE_H_

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/ddp/bucket_layout.h"

namespace lockstep::ddp {

// Converts a layout to a checkpoint's value, which Python can read too: {"world_size": 4, "buckets": [["second.bias",
// "second.weight"], ...]}.
checkpoint::Value ToValue(const BucketLayout& layout, int world_size);

// The inverse. Returns an empty layout if the value is from another world size, where sums are rounded differently.
// InvalidArgument, naming the key: the value has another form.
absl::StatusOr<BucketLayout> ToBucketLayout(const checkpoint::Value& value, int world_size);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_BUCKET_LAYOUT_VALUE_H_
