// Data-parallel training: each rank runs the module on its own samples, and backward leaves the same averaged gradients
// on all ranks.

#ifndef LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
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

template <typename Net>
class DistributedDataParallel;

// The virtual ranks of one rank in one step, for a range-based for: see DistributedDataParallel::VirtualRanks().
class VirtualRankRange {
 public:
  class Iterator {
   public:
    int operator*() const { return replica_->virtual_ranks()[place_]; }
    Iterator& operator++() {
      replica_->EndVirtualRank(place_);
      if (++place_ < replica_->virtual_ranks().size()) replica_->BeginVirtualRank(place_);
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& b) { return a.place_ != b.place_; }

   private:
    friend class VirtualRankRange;
    Iterator(internal::Replica* replica, size_t place) : replica_(replica), place_(place) {}

    internal::Replica* replica_;
    size_t place_;
  };

  VirtualRankRange(const VirtualRankRange&) = delete;
  VirtualRankRange& operator=(const VirtualRankRange&) = delete;
  ~VirtualRankRange() { replica_->LeaveVirtualStep(/*thrown=*/std::uncaught_exceptions() > exceptions_); }

  // Begins the step. Call it once, before end().
  Iterator begin() {
    replica_->BeginVirtualStep(step_, with_inputs_);
    if (!replica_->virtual_ranks().empty()) replica_->BeginVirtualRank(0);
    return Iterator(replica_, 0);
  }
  Iterator end() { return Iterator(replica_, replica_->virtual_ranks().size()); }

 private:
  template <typename Net>
  friend class DistributedDataParallel;
  VirtualRankRange(internal::Replica* replica, int64_t step, std::optional<std::vector<int>> with_inputs)
      : replica_(replica), step_(step), with_inputs_(std::move(with_inputs)) {}

  internal::Replica* replica_;
  int64_t step_;
  std::optional<std::vector<int>> with_inputs_;  // not set: all
  const int exceptions_ = std::uncaught_exceptions();
};

namespace internal {

// For the parts of DDP that are not templates.
template <typename Net>
Replica& ReplicaOf(DistributedDataParallel<Net>& ddp) {
  return *ddp.replica_;
}

}  // namespace internal

// A handle on a wrapped module. Movable. Its forward has the same arguments and result as the module's.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(Net(), group.get()));
//   torch::optim::SGD optimizer(ddp.parameters(), 0.1);
//   optimizer.zero_grad();
//   torch::nn::functional::cross_entropy(ddp(images), labels).backward();   // gradients averaged over the ranks here
//   optimizer.step();                                                        // the same step on every rank
//
// Every rank must wrap the same module, run the same sequence of forward and backward passes, and step an optimizer
// with the same settings. See Join for ranks with fewer inputs, and NoSync for backward passes that only accumulate.
// Every backward through what forward computed is averaged, also several after one forward. Every other backward leaves
// this rank's own gradients. Unless an option says otherwise, each parameter that requires gradients must take part in
// each loss. If the parameters' dtype or device changes after wrapping, or if there are new parameters or frozen ones
// that require gradients now, the next forward throws an error. Several wrappers may share parameters: in turn each
// averages its own backward, and in a backward through several wrappers each gradient is averaged once.
//
// If the module has buffers, forward first broadcasts them from rank 0, in eval mode too, so all ranks must call it
// equally often. For evaluation use module(), which does not communicate. operator-> does not exist, since it would
// bypass forward.
//
// If device_ids or mixed_precision is set, the module's forward gets copies of arguments that contain tensors. Writes
// to these copies are lost, and forward must not return a reference to one.
//
// As in LibTorch, errors inside forward and backward are thrown: as StatusError (base/torch_status.h), whose status
// names the rank, the problem and its reason. Only one thread at a time may use a handle. Several wrapped modules may
// share a group if all ranks use them in the same order.
template <typename Net>
class DistributedDataParallel {
 public:
  // Throws StatusError: a previous backward was not averaged, the group has failed, or a rank was lost.
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    return internal::Forward(
        *replica_, *net_,
        [this](auto&&... a) -> decltype(auto) { return net_->forward(std::forward<decltype(a)>(a)...); },
        std::forward<Args>(args)...);
  }
  template <typename... Args>
  decltype(auto) operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  // With Options::virtual_ranks = V: the virtual ranks that this rank trains for in step number `step`. All ranks'
  // together are 0 to V - 1. A step then leaves the same bits on any number of ranks from 1 to V, in gradients,
  // parameters, buffers and the optimizer's state. They are the bits of V ranks with one virtual rank each.
  //
  //   for (const int virtual_rank : ddp.VirtualRanks(step)) {
  //     const data::Example batch = ...;   // the share `virtual_rank` of V, as num_replicas = V and rank = virtual_rank give
  //     loss(ddp(batch.data), batch.target).backward();
  //   }
  //   optimizer.step();
  //
  // Every virtual rank's forward starts from the buffers (such as BatchNorm's) that virtual rank 0 had after the last
  // step. The default generators are seeded for each virtual rank from Options::virtual_seed, `step` and the virtual
  // rank, so that dropout does not depend on the rank either, and are not restored. So `step` counts over all epochs,
  // and goes on where a checkpoint was saved: a number that repeats repeats its dropout. Gradients are added in the
  // order of comm::SumTree and divided by V once. Their all-reduce overlaps with the last virtual rank's backward.
  //
  // Results also depend on the number of threads with which operators compute (at::set_num_threads), on the processor's
  // instruction set, and on a GPU on its model and cuDNN's choice of algorithms. Keep these the same.
  //
  // A virtual rank may run several backward passes; all but its last must be under a NoSync. If one has no other, or
  // two, this throws FailedPrecondition that names it. So does the next step if the loop was left early, except by an
  // exception: then the next call begins a new step. Without Options::virtual_ranks the loop runs once, for this
  // rank, and changes nothing; so one loop serves both. All ranks must call it equally often.
  VirtualRankRange VirtualRanks(int64_t step) { return VirtualRankRange(replica_.get(), step, std::nullopt); }

  // Under a Join: only these of this rank's virtual ranks have inputs in this step; in ascending order. Call
  // Join::Finish() when none has any. The gradients of the others count as zero. Buffers come from the highest virtual
  // rank that has inputs. Throws StatusError: InvalidArgument if it is not some of this rank's virtual ranks,
  // FailedPrecondition if some are missing outside of a Join.
  VirtualRankRange VirtualRanks(int64_t step, std::vector<int> with_inputs) {
    return VirtualRankRange(replica_.get(), step, std::move(with_inputs));
  }

  // The wrapped module. Its state dict has no "module." prefix.
  Net& module() { return net_; }
  const Net& module() const { return net_; }

  // Each parameter of the module once, in order. Pass them to the optimizer.
  std::vector<at::Tensor> parameters() const { return replica_->parameters(); }

  void train(bool on = true) { net_->train(on); }
  void eval() { net_->eval(); }
  void zero_grad(bool set_to_none = true) { net_->zero_grad(set_to_none); }

  // Replaces the all_reduce of gradients from the next backward on. All ranks must call it with the same hook.
  // FailedPrecondition: there is a hook already, or backward or the loop over VirtualRanks() is running.
  //
  // With Options::virtual_ranks only hooks that average each virtual rank's gradients keep the same bits on any number
  // of ranks: hooks::AllReduce, Fp16Compress, Bf16Compress, and the wrappers of AllReduce. InvalidArgument for others.
  absl::Status RegisterHook(CommunicationHook hook) { return replica_->RegisterHook(std::move(hook)); }

  // The buckets of the next backward, for RestoreBucketLayout(). Empty before the end of the first backward, unless
  // Options::find_unused_parameters fixes the buckets from the start. Always empty in a group that may have Python
  // ranks, which cannot restore a layout. Call it between steps, on rank 0. Between the first backward and the next
  // forward, other ranks may return another layout.
  BucketLayout bucket_layout() const { return replica_->NextBucketLayout(); }

  // Uses these buckets from now on and does not lay them out anew, for a run that resumes from a checkpoint. With more
  // than two ranks, a backend may add numbers in an order that depends on their position in a bucket, as Gloo does, and
  // a new handle begins with other buckets. Without this call a resumed run may therefore differ from the uninterrupted
  // one by rounding. All ranks must call it with the same layout before the first forward. An empty layout changes
  // nothing.
  //
  //   LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, ddp::Wrap(net, group.get()));
  //   LOCKSTEP_RETURN_IF_ERROR(ddp.RestoreBucketLayout(layout));   // bucket_layout() of when the checkpoint was saved
  //
  // InvalidArgument, and nothing changes: the ranks' layouts differ, or the layout does not fit the module (a parameter
  // is unknown, missing or occurs twice, or a bucket mixes dtypes or devices). FailedPrecondition: backward is running,
  // or the group may have Python ranks and the layout is not empty. Other errors come from the store.
  absl::Status RestoreBucketLayout(const BucketLayout& layout) { return replica_->RestoreBucketLayout(layout); }

  // Statistics of the last steps, at most 128, oldest first. See Summary(), and WriteChromeTrace() in
  // chrome_trace.h. On a GPU this blocks until the steps are done.
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

// Wraps `net`, a module holder (TORCH_MODULE) or a std::shared_ptr to a module. `group` is borrowed and must outlive
// the result. Compares the ranks' parameters, and gives every rank rank 0's parameters and buffers. Every rank of
// `group` must call it, and it blocks until all do. InvalidArgument, on all ranks: the parameters differ in name,
// shape, dtype, strides or requires_grad (the error names the first difference), no parameter requires gradients, or an
// option is out of range. Other errors come from the group's collectives.
template <typename Net>
absl::StatusOr<DistributedDataParallel<Net>> Wrap(Net net, comm::ProcessGroup* group, const Options& options = {}) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<internal::Replica> replica,
                            internal::Replica::Create(*net, group, options));
  return DistributedDataParallel<Net>(std::move(net), std::move(replica));
}

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_
