#ifndef LOCKSTEP_DDP_INTERNAL_BUCKET_H_
#define LOCKSTEP_DDP_INTERNAL_BUCKET_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/types/optional.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/reducer.h"

namespace lockstep::ddp::internal {

struct Reducer::Bucket {
  int index = 0;
  std::vector<int> parameters;
  at::Tensor buffer;  // of a sparse one: this rank's gradient
  bool sparse = false;
  bool delayed = false;
  bool multiplied_in_sum = false;   // its all_reduce multiplies at no cost; the same on every rank
  int pending = 0;                  // parameters whose gradient is not in yet
  absl::optional<comm::Work> work;  // once started: of an all_reduce in place,
  absl::optional<Future> future;    // or of anything else
  GradBucket for_hook;              // of a dense one
};

// A gradient of an embedding of which no row was used: as one of some rows it has one sparse dimension.
at::Tensor EmptySparse(const at::Tensor& like);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_BUCKET_H_
