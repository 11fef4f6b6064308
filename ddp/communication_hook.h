// What replaces the all-reduce of a bucket of gradients.

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

// A bucket of gradients on its way to a communication hook.
struct GradBucket {
  // The bucket's place in the order in which buckets are reduced; the same on every rank.
  int index = 0;
  bool is_last = true;

  // How often buckets have been laid out anew, as they are once, after the first backward. What a hook keeps for a
  // bucket, such as an error to feed back, belongs to one layout.
  int layout = 0;

  // This rank's gradients, not divided by the number of ranks: one-dimensional, of one dtype and device. A hook may
  // write to it and return it.
  at::Tensor buffer;

  // Parts of `buffer`, each of its parameter's shape.
  std::vector<at::Tensor> gradients;

  // In the order of `gradients`: the parameters, and their names in the module.
  std::vector<at::Tensor> parameters;
  std::vector<std::string> names;
};

// A tensor that will be there. Movable.
class Future {
 public:
  // It is there already.
  Future(at::Tensor value);  // NOLINT(google-explicit-constructor): a hook may return its tensor

  // It is there once `work` is done.
  Future(comm::Work work, at::Tensor value);

  // `wait` blocks until it is there; called at most once.
  explicit Future(std::function<absl::StatusOr<at::Tensor>()> wait);

  // PyTorch's, of a tensor or of a list of one.
  explicit Future(c10::intrusive_ptr<c10::ivalue::Future> future);

  // The future of then(value). `then` runs in the thread that waits, which for the futures of a DDP's hook is the one
  // that called backward, bucket after bucket: so collectives it starts come in one order on all ranks. An error of
  // this future is passed on without calling it.
  Future Then(std::function<absl::StatusOr<at::Tensor>(at::Tensor)> then) &&;

  // Blocks. To be called once.
  absl::StatusOr<at::Tensor> Wait();

 private:
  std::function<absl::StatusOr<at::Tensor>()> wait_;
};

// Called when all of a bucket's gradients are in, bucket after bucket in the order of GradBucket::index, in the thread
// that runs backward. The future's tensor has the shape of `bucket.buffer`, may be it, and becomes the gradients: a
// hook divides by the number of ranks itself. All ranks need the same hook, and every rank the same tensor in the end,
// or their parameters drift apart. What it throws, and an error of its future, fails backward.
//
//   [group](ddp::GradBucket& bucket) {
//     bucket.buffer.div_(group->size());
//     return ddp::Future(group->AllReduceAsync(bucket.buffer), bucket.buffer);
//   }
using CommunicationHook = std::function<Future(GradBucket& bucket)>;

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_COMMUNICATION_HOOK_H_
