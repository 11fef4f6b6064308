// Data-parallel training: each rank runs the module on its own samples, and backward leaves the same averaged gradients
// on all of them.

#ifndef LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <deque>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/base/tensors.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/bucket_layout.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/forward.h"
#include "lockstep/ddp/internal/replica.h"
#include "lockstep/ddp/options.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp {

// A handle on a wrapped module. Movable. Forwards like the module it wraps: the same arguments, the same result.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(Net(), group.get()));
//   torch::optim::SGD optimizer(ddp.parameters(), 0.1);
//   optimizer.zero_grad();
//   torch::nn::functional::cross_entropy(ddp(images), labels).backward();   // gradients averaged over the ranks here
//   optimizer.step();                                                        // the same step on every rank
//
// Every rank must wrap the same module, run the same sequence of forward and backward passes, and step an optimizer of
// the same settings; see Join for ranks with fewer inputs, and NoSync for backward passes that only accumulate. Every
// backward that reaches the parameters is averaged, however often one follows a forward. Each parameter that requires
// gradients must take part in each loss, unless options say otherwise. Changing the parameters' dtype or device after
// wrapping disconnects them: the next forward says so.
//
// The forward of a module with buffers broadcasts them from rank 0 first, also in eval mode, so all ranks must call it
// equally often: evaluate with module(), which is local. There is no operator->: it would lead around forward.
//
// Where device_ids or mixed_precision is set, the module's forward gets changed copies of the arguments that hold
// tensors: what it writes to them is lost, and it must not return a reference to one.
//
// Errors inside forward and backward are thrown, as LibTorch code does, as StatusError (base/torch_status.h), whose
// status says which rank, what, and why. One thread uses a handle at a time. Several wrapped modules may share a group
// if all ranks use them in the same order.
template <typename Net>
class DistributedDataParallel {
 public:
  // Throws StatusError: an earlier backward that was not averaged, a failed group, a lost rank.
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    return internal::Forward(
        *replica_, [this](auto&&... a) -> decltype(auto) { return net_->forward(std::forward<decltype(a)>(a)...); },
        std::forward<Args>(args)...);
  }
  template <typename... Args>
  decltype(auto) operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  // The wrapped module, whose state dict has no "module." prefix.
  Net& module() { return net_; }
  const Net& module() const { return net_; }

  // For the optimizer: each of the module's parameters once, in order.
  std::vector<at::Tensor> parameters() const { return replica_->parameters(); }

  void train(bool on = true) { net_->train(on); }
  void eval() { net_->eval(); }
  void zero_grad(bool set_to_none = true) { net_->zero_grad(set_to_none); }

  // Replaces the all_reduce of gradients from the next backward on; all ranks must do the same. FailedPrecondition if
  // there is a hook already, or in backward.
  absl::Status RegisterHook(CommunicationHook hook) { return replica_->RegisterHook(std::move(hook)); }

  // The buckets of the next backward, for RestoreBucketLayout(); empty before the first backward is over, unless
  // Options::find_unused_parameters fixes them from the start. Call it between steps, on rank 0: between the first
  // backward and the forward after it other ranks may return another layout.
  BucketLayout bucket_layout() const { return replica_->NextBucketLayout(); }

  // For a run that resumes from a checkpoint: backward uses these buckets from now on, and they are not laid out anew.
  // With more than two ranks a backend may add numbers in an order that depends on their place in a bucket, as Gloo
  // does, and a new handle begins with other buckets: without this call a resumed run may differ from the
  // uninterrupted one by rounding. All ranks must call it, with the same layout, before the first forward; an empty
  // layout changes nothing.
  //
  //   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get()));
  //   LOCKSTEP_RETURN_IF_ERROR(ddp.RestoreBucketLayout(layout));   // bucket_layout() of when the checkpoint was saved
  //
  // InvalidArgument, with nothing changed: the ranks' layouts differ, or the layout does not fit the module (a
  // parameter is unknown, missing or there twice; dtypes or devices share a bucket). FailedPrecondition in backward,
  // and in a group with Python ranks, which cannot do the same. Otherwise the store's error.
  absl::Status RestoreBucketLayout(const BucketLayout& layout) { return replica_->RestoreBucketLayout(layout); }

  // The last steps, 128 at most, oldest first; see Summary() and WriteChromeTrace(). On a GPU this blocks until it has
  // done them.
  const std::deque<StepStatistics>& statistics() const { return replica_->reducer().recorder().steps(); }

 private:
  template <typename T>
  friend absl::StatusOr<DistributedDataParallel<T>> Wrap(T, comm::ProcessGroup*, const Options&);
  template <typename T>
  friend internal::Replica& internal::ReplicaOf(DistributedDataParallel<T>& ddp);

  DistributedDataParallel(Net net, std::unique_ptr<internal::Replica> replica)
      : net_(std::move(net)), replica_(std::move(replica)) {}

  Net net_;
  std::unique_ptr<internal::Replica> replica_;
};

// Wraps `net`, a module holder (TORCH_MODULE) or a std::shared_ptr to a module, on every rank of `group`, which is
// borrowed and must outlive the result. Compares the ranks' parameters and gives them rank 0's parameters and buffers.
// All ranks must call it; it blocks until they do. InvalidArgument, on all ranks: the parameters differ in name, shape,
// dtype, strides or requires_grad (the first is named), none requires gradients, or an option is out of range.
// Otherwise the errors of the group's collectives.
template <typename Net>
absl::StatusOr<DistributedDataParallel<Net>> Wrap(Net net, comm::ProcessGroup* group, const Options& options = {}) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<internal::Replica> replica,
                            internal::Replica::Create(*net, group, options));
  return DistributedDataParallel<Net>(std::move(net), std::move(replica));
}

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_
