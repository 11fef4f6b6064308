// Fully sharded data-parallel training: parameters, gradients and optimizer states are divided among the ranks.

#ifndef LOCKSTEP_FSDP_FULLY_SHARDED_H_
#define LOCKSTEP_FSDP_FULLY_SHARDED_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/full_parameters.h"
#include "lockstep/fsdp/internal/sharded_module.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp {

class NoSync;

namespace internal {
struct ShardedAccess;
}

// The virtual ranks of one rank in one step, for a range-based for: see FullyShardedDataParallel::VirtualRanks().
class VirtualRankRange {
 public:
  class Iterator {
   public:
    int operator*() const { return loop_->ranks()[place_]; }
    Iterator& operator++() {
      loop_->EndRank(place_);
      if (++place_ < loop_->ranks().size()) loop_->BeginRank(place_);
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& b) { return a.place_ != b.place_; }

   private:
    friend class VirtualRankRange;
    Iterator(internal::VirtualStep* loop, size_t place) : loop_(loop), place_(place) {}

    internal::VirtualStep* loop_;
    size_t place_;
  };

  VirtualRankRange(internal::VirtualStep* loop, int64_t step) : loop_(loop), step_(step) {}
  VirtualRankRange(const VirtualRankRange&) = delete;
  VirtualRankRange& operator=(const VirtualRankRange&) = delete;
  ~VirtualRankRange() { loop_->Leave(/*thrown=*/std::uncaught_exceptions() > exceptions_); }

  // Begins the step. Call it once, before end().
  Iterator begin() {
    loop_->Begin(step_);
    loop_->BeginRank(0);
    return Iterator(loop_, 0);
  }
  Iterator end() { return Iterator(loop_, loop_->ranks().size()); }

 private:
  internal::VirtualStep* loop_;
  int64_t step_;
  const int exceptions_ = std::uncaught_exceptions();
};

// A handle on a wrapped module. Movable. Its forward has the same arguments and result as the module's.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto net, fsdp::Wrap(Gpt(), group.get(), {.units = {"blocks.*"}}));
//   optim::AdamW optimizer(net.shards(), 1e-3);
//   loss(net(tokens), targets).backward();                    // averages the gradients, unit by unit while it runs
//   LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));            // steps this rank's shards
//
// The module's code stays as it is: in forward and backward its parameters are whole. On one host they lie in memory
// that all ranks share (Residency::kSharedPages); otherwise a unit is gathered when it is used (Residency::kPaged). Each
// rank owns shards of them, steps these alone, and has gradients and states of these alone. With kHybridShard the ranks at
// one place of each host own the same shards. After backward the module's parameters have no gradient. The gradients of
// shards() are there in Step(), or after PrepareGradients(): before, an operator that takes one throws StatusError. Other
// code reads parameters within FullParameters().
//
// If the parameters are on a GPU, the group has a backend for it and one for the CPU ("cpu:gloo,cuda:nccl"), and the
// residency is kPaged. Set the device before, as NCCL needs it. Forward and backward may run on any stream.
//
// Every rank must wrap the same module, and run the same sequence of forward, backward and Step(). Backward averages
// over the ranks; several before a Step() add up. A parameter that no rank used in a step has no gradient in it.
//
// Errors inside forward and backward are thrown as StatusError, whose status names the rank and the reason. Only one
// thread at a time may use a handle. The module's parameters must not be used after the handle.
template <typename Net>
class FullyShardedDataParallel {
 public:
  template <typename... Args>
  decltype(auto) forward(Args&&... args) {
    const internal::ShardedModule::Forward running(module_.get(), *net_);
    return net_->forward(Input(std::forward<Args>(args))...);
  }
  template <typename... Args>
  decltype(auto) operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  // The parts of the parameters that this rank owns, for an optimizer that steps element by element. With
  // Shard::kElements each has one dimension. shard_names() are their parameters' names.
  const std::vector<at::Tensor>& shards() const { return module_->shards(); }
  const std::vector<std::string>& shard_names() const { return module_->shard_names(); }

  // Waits for the mean gradients, steps the optimizer, with shared pages waits until all ranks have stepped, and releases
  // the gradients, so zero_grad() is not needed. The optimizer may have some of the shards.
  // Every rank must call it. InvalidArgument: the optimizer has other parameters than shards(). FailedPrecondition: no
  // backward has ended since the last step, a virtual rank is missing, FullParameters() are open, or, paged, a parameter
  // was written to and the write is lost.
  // Other errors are the group's, or the optimizer's; they fail the group.
  absl::Status Step(torch::optim::Optimizer& optimizer) { return module_->Step(optimizer); }
  // `step` steps this rank's shards, whose gradients are there, for example by a GradScaler. With [] {} it discards the
  // gradients.
  absl::Status Step(const std::function<void()>& step) { return module_->Step(step); }

  // Waits for the mean gradients and gives them to shards(), as Step() and ClipGradNorm() do otherwise: for code that
  // looks at them before, such as GradScaler::Unscale(). Every rank must call it. After it, and after ClipGradNorm(),
  // forward throws StatusError until Step() is called. FailedPrecondition: no backward has ended since the last step.
  //
  //   scaler.Scale(loss).backward();                                 // GradScalerOptions::group is the group
  //   LOCKSTEP_RETURN_IF_ERROR(net.PrepareGradients());
  //   LOCKSTEP_RETURN_IF_ERROR(scaler.Unscale(optimizer));
  //   LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(1.0).status());
  //   absl::StatusOr<bool> stepped;
  //   LOCKSTEP_RETURN_IF_ERROR(net.Step([&] { stepped = scaler.Step(optimizer); }));
  //   LOCKSTEP_RETURN_IF_ERROR(stepped.status());
  //   LOCKSTEP_RETURN_IF_ERROR(scaler.Update());
  absl::Status PrepareGradients() { return module_->PrepareGradients(); }

  // Between backward and Step(): scales the gradients by min(1, max_norm / (norm + 1e-6)), where `norm` is that of all
  // parameters' gradients as one vector, and returns it. Every rank must call it. The norm and the gradients have the
  // bits of ddp::ClipGradNorm(), and so of Python's clip_grad_norm_, on any number of ranks, if all parameters have one
  // dtype. With an infinite norm the gradients become zero or NaN. InvalidArgument: an argument is negative or NaN.
  // FailedPrecondition: no backward has ended.
  absl::StatusOr<double> ClipGradNorm(double max_norm, double norm_type = 2) {
    return module_->ClipGradNorm(max_norm, norm_type);
  }

  // With Options::virtual_ranks = V: the virtual ranks that this rank trains for in step number `step`: r, r + W,
  // r + 2 W, ... of rank r of W. A step then leaves the same bits on any number of ranks from 1 to V: with
  // Shard::kElements the bits of DistributedDataParallel with as many virtual ranks. Generators are seeded as there.
  //
  //   for (const int virtual_rank : net.VirtualRanks(step)) {
  //     loss(net(inputs_of(virtual_rank)), targets_of(virtual_rank)).backward();
  //   }
  //   LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
  //
  // Each virtual rank runs one backward, besides those under NoSync. If it runs none or two, or if the loop is left early,
  // an error is thrown.
  // Without Options::virtual_ranks the loop runs once, for this rank.
  VirtualRankRange VirtualRanks(int64_t step) { return VirtualRankRange(&module_->virtual_step(), step); }

  // Makes all parameters whole until the result is destroyed, and, with Access::kWrite, keeps what is written to them
  // meanwhile. Every rank must call it, and write the same. With Residency::kPaged each rank then has memory for all
  // parameters. With Residency::kSharedPages they are whole always, and nothing is copied.
  //
  //   {
  //     LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  //     if (group->rank() == 0) status = checkpoint::Save("net.pt", checkpoint::StateDict(*net.module()));
  //   }
  //
  // FailedPrecondition: a backward runs, or another FullParameters() is open. Other errors are the group's.
  absl::StatusOr<fsdp::FullParameters> FullParameters(Access access = Access::kRead) {
    LOCKSTEP_RETURN_IF_ERROR(module_->BeginFull(access == Access::kWrite));
    return fsdp::FullParameters(module_.get());
  }

  // The wrapped module.
  Net& module() { return net_; }
  const Net& module() const { return net_; }

  // Each parameter of the module once, in order. An optimizer needs shards() instead.
  const std::vector<at::Tensor>& parameters() const { return module_->parameters(); }

  void train(bool on = true) { net_->train(on); }
  void eval() { net_->eval(); }

 private:
  template <typename T>
  friend absl::StatusOr<FullyShardedDataParallel<T>> Wrap(T, comm::ProcessGroup*, const Options&,
                                                          internal::KeptShards*);
  friend class NoSync;
  friend struct internal::ShardedAccess;

  template <typename T>
  decltype(auto) Input(T&& argument) const {
    if constexpr (std::is_same_v<std::decay_t<T>, at::Tensor>) {
      return module_->Input(argument);
    } else {
      return std::forward<T>(argument);
    }
  }

  FullyShardedDataParallel(Net net, std::unique_ptr<internal::ShardedModule> module)
      : net_(std::move(net)), module_(std::move(module)) {}

  Net net_;
  std::unique_ptr<internal::ShardedModule> module_;
};

// Wraps `net`, a module holder (TORCH_MODULE) or a std::shared_ptr to a module. `group` is borrowed and must outlive
// the result. Compares the ranks' parameters and options, and gives every rank rank 0's parameters and buffers. Every
// rank of `group` must call it, and it blocks until all do. InvalidArgument, on all ranks: the parameters or options
// differ, no parameter requires gradients, a path of Options::units fits none, two parameters share memory, or, with
// kHybridShard, hosts have different numbers of ranks.
// FailedPrecondition: Options::residency is kSharedPages, and the backend of the ranks among which parameters are divided
// does not share memory, as shm does.
// With Residency::kPaged, InvalidArgument also if another tensor, such as a view, holds a parameter's memory.
// The parameters are on a CPU, or all on one GPU. InvalidArgument: they are on several devices, or the group has no backend
// for the device, or for a GPU none for the CPU besides. Unimplemented: with these options they must be on the CPU. Other
// errors come from the group. `kept` is for elastic::ShardedModel.
template <typename Net>
absl::StatusOr<FullyShardedDataParallel<Net>> Wrap(Net net, comm::ProcessGroup* group, const Options& options = {},
                                                   internal::KeptShards* kept = nullptr) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<internal::ShardedModule> module,
                            internal::ShardedModule::Create(*net, group, options, kept));
  return FullyShardedDataParallel<Net>(std::move(net), std::move(module));
}

}  // namespace lockstep::fsdp

#endif  // LOCKSTEP_FSDP_FULLY_SHARDED_H_
