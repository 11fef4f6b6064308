// Communication hooks, which replace the all-reduce of a bucket of gradients.

#ifndef LOCKSTEP_DDP_COMMUNICATION_HOOK_H_
#define LOCKSTEP_DDP_COMMUNICATION_HOOK_H_

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/comm/work.h"

namespace c10::ivalue {
struct Future;
}

namespace lockstep::ddp {

// A bucket of gradients, the argument of a communication hook.
struct GradBucket {
  // The position of the bucket in the order of reduction. The same on every rank.
  int index = 0;
  bool is_last = true;

  // How often the buckets have been laid out anew, which happens once, after the first backward. If a hook keeps state
  // for a bucket, such as an error to feed back, it is valid for one layout only.
  int layout = 0;

  // This rank's gradients, not divided by the number of ranks: one-dimensional, of one dtype and device. A hook may
  // write to it and return it.
  at::Tensor buffer;

  // Views of `buffer`, one for each parameter and of its shape.
  std::vector<at::Tensor> gradients;

  // The parameters in the order of `gradients`, and their names in the module.
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
};

// A tensor that will be available later. Movable.
class Future {
 public:
  // Available at once.
  Future(at::Tensor value);  // NOLINT(google-explicit-constructor): a hook may return its tensor

  // Available once `work` is done.
  Future(comm::Work work, at::Tensor value);

  // `wait` blocks until the tensor is available. It is called at most once.
  explicit Future(std::function<absl::StatusOr<at::Tensor>()> wait);

  // PyTorch's future, of a tensor or of a list with one tensor.
  explicit Future(c10::intrusive_ptr<c10::ivalue::Future> future);

  // Returns the future of then(value). `then` runs on the thread that waits. For the futures of a DDP hook this is the
  // thread that called backward, bucket after bucket, so collectives in `then` have the same order on all ranks. If
  // this future has an error, the result has it too, and `then` is not called.
  Future Then(std::function<absl::StatusOr<at::Tensor>(at::Tensor)> then) &&;

  // Blocks until the tensor is available. Call it once.
  absl::StatusOr<at::Tensor> Wait();

 private:
  std::function<absl::StatusOr<at::Tensor>()> wait_;
};

// Called when all gradients of a bucket are available, in the order of GradBucket::index, on the thread that runs
// backward. The future's tensor must have the shape of `bucket.buffer`, may be `bucket.buffer`, and becomes the
// gradients. A hook must itself divide by the number of ranks. All ranks must use the same hook, and every rank must
// get the same tensor, or their parameters diverge. If the hook throws or its future has an error, backward fails.
//
//   [group](ddp::GradBucket& bucket) {
//     bucket.buffer.div_(group->size());
//     return ddp::Future(group->AllReduceAsync(bucket.buffer), bucket.buffer);
//   }
using CommunicationHook = std::function<Future(GradBucket& bucket)>;

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_COMMUNICATION_HOOK_H_
