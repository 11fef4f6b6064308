// Data-parallel training: each rank runs the module on its own samples, and backward leaves the same averaged gradients
// on all of them.

#ifndef LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define LOCKSTEP_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/internal/replica.h"
#include "lockstep/ddp/options.h"

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
// the same settings. Every backward that reaches the parameters is averaged, however often one follows a forward. Each
// parameter that requires gradients must take part in each loss. Changing the parameters' dtype or device after
// wrapping disconnects them: the next forward says so.
//
// The forward of a module with buffers broadcasts them from rank 0 first, also in eval mode, so all ranks must call it
// equally often: evaluate with module(), which is local. There is no operator->: it would lead around forward.
//
// Errors inside forward and backward are thrown, as LibTorch code does, as StatusError (base/torch_status.h), whose
// status says which rank, what, and why. One thread uses a handle at a time.
template <typename Net>
class DistributedDataParallel {
 public:
  // Throws StatusError: an earlier backward that was not averaged, a failed group, a lost rank.
  template <typename... Args>
  auto forward(Args&&... args) {
    replica_->BeforeForward();
    return net_->forward(std::forward<Args>(args)...);
  }
  template <typename... Args>
  auto operator()(Args&&... args) {
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

 private:
  template <typename T>
  friend absl::StatusOr<DistributedDataParallel<T>> Wrap(T, comm::ProcessGroup*, const Options&);

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
