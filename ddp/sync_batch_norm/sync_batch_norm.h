// Batch normalisation over the batches of all ranks together.

#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <ostream>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/sync_batch_norm/norm_factory.h"

namespace lockstep::ddp {

// Combines torch::nn::BatchNorm1d, 2d and 3d. In training it normalises with the mean and variance of the values of all
// ranks of a group together, as BatchNorm does in one process with the joined batch. Use it if the batch of each rank
// is small. It runs on CPUs and GPUs.
//
//   ddp::SyncBatchNorm norm(torch::nn::BatchNormOptions(64).momentum(0.01), group.get());
//   norm->to(torch::kCUDA);
//   at::Tensor y = norm(x);   // x: [N, 64, ...]
//   norm->eval();
//   at::Tensor z = norm(x);   // this rank alone
//
// Options, parameters and buffers have BatchNorm's names, order, shapes and defaults (num_features, eps, momentum or
// nullopt for a cumulative average, affine, track_running_stats; weight, bias, running_mean, running_var,
// num_batches_tracked), so each can load the other's state dict.
//
// In training, all ranks of the group must call forward equally often and in the same order, and so backward, with or
// without gradients. N and the other dimensions may differ between ranks, and N may be 0. The number of channels must
// be the same. Forward is one all-gather of 2C + 1 doubles. Backward is one all-reduce of 2C doubles, unless the input
// needs no gradient. In eval mode nothing is sent: the running statistics are used or, if they do not exist, the
// statistics of this rank's batch.
//
// Every rank keeps the same running statistics, bit for bit. The gradients of weight and bias are this rank's part: sum
// or average them over the ranks, as DistributedDataParallel does. Inputs may be half or bfloat16 with parameters in
// float; all sums are then in float. Statistics are sent in double, as mean, squared deviations and count, so Python
// ranks with torch.nn.SyncBatchNorm cannot be in the group. In a group of one rank, or without a group, it equals
// BatchNorm bit for bit.
//
// forward and backward throw StatusError. InvalidArgument: the input has fewer than two dimensions or a wrong number of
// channels (both before anything is sent), or all ranks together have fewer than two values a channel (on every rank).
// Unimplemented: differentiating a backward. Other errors come from the collectives.
//
// If DistributedDataParallel uses the same group, the layer's collectives come between its collectives. If ranks may
// run different graphs, use a separate group. The group must outlive the layer and every graph made with it.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  // `process_group` is borrowed; null means this rank only. BatchNormOptions converts from a number of channels.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, comm::ProcessGroup* process_group);

  // A replacement for `layer`, with its options, its training flag, and the same parameter and buffer tensors, so that
  // existing optimizers keep stepping them.
  template <size_t D, typename Derived>
  SyncBatchNormImpl(const torch::nn::BatchNormImplBase<D, Derived>& layer, comm::ProcessGroup* group)
      : options(layer.options), process_group(group) {
    Register(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.num_batches_tracked);
    train(layer.is_training());
  }

  // `input`: [N, C, ...] with at least two dimensions. The output has its shape, dtype and memory format.
  at::Tensor forward(const at::Tensor& input);

  void reset() override;
  void reset_running_stats();
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  torch::nn::BatchNormOptions options;
  comm::ProcessGroup* process_group;

  // Undefined without `affine`.
  at::Tensor weight;
  at::Tensor bias;

  // Undefined without `track_running_stats`.
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;

 private:
  void Register(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& running_mean,
                const at::Tensor& running_var, const at::Tensor& num_batches_tracked);
  absl::Status CheckInput(const at::Tensor& input) const;
  at::Tensor ForwardOverRanks(const at::Tensor& input);
  at::Tensor ForwardOnThisRank(const at::Tensor& input);
  double CountBatch();
};

TORCH_MODULE(SyncBatchNorm);

// Creates SyncBatchNorm layers over `group`, with the default options. `group` is borrowed.
NormFactory SyncBatchNormFactory(comm::ProcessGroup* group);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_
