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

// torch::nn::BatchNorm1d, 2d and 3d in one, which in training normalises with the mean and variance of the values that
// all ranks of a group have together: what BatchNorm does in one process with the joined batch. For batches that are
// small on each rank. On CPUs and GPUs.
//
//   ddp::SyncBatchNorm norm(torch::nn::BatchNormOptions(64).momentum(0.01), group.get());
//   norm->to(torch::kCUDA);
//   at::Tensor y = norm(x);   // x: [N, 64, ...]
//   norm->eval();
//   at::Tensor z = norm(x);   // this rank alone
//
// Options, parameters and buffers have BatchNorm's names, order, shapes and defaults (num_features, eps, momentum or
// nullopt for a cumulative average, affine, track_running_stats; weight, bias, running_mean, running_var,
// num_batches_tracked), so the state dict of one loads into the other.
//
// Which ranks must call it: in training all ranks of the group call forward equally often and in the same order, and so
// backward, with or without gradients. N and the other dimensions may differ between ranks and N may be 0; the number
// of channels may not. Forward is one all-gather of 2C + 1 doubles, backward one all-reduce of 2C doubles, which is
// left out if the input needs no gradient. In eval mode nothing is sent: running statistics are used, or those of this
// rank's batch if there are none.
//
// Every rank keeps the same running statistics, to the bit. The gradients of weight and bias are this rank's part, as
// DistributedDataParallel expects them: they are to be summed or averaged over the ranks. Inputs may be half or
// bfloat16 with parameters in float; all sums are then in float. Statistics travel in double, as mean, squared
// deviations and count: a group in which Python ranks run torch.nn.SyncBatchNorm cannot be mixed with this one. In a
// group of one, or none, it is BatchNorm, to the bit.
//
// forward and backward throw StatusError. InvalidArgument: fewer than two dimensions, a wrong number of channels (both
// before anything is sent), or fewer than two values a channel on all ranks together (on every rank). Unimplemented: a
// backward that is itself to be differentiated. Otherwise the error of the collective.
//
// The collectives are the group's, between those of DistributedDataParallel if it has the same group. Where ranks may
// run different graphs, give it a group of its own. The group must outlive the layer and every graph made with it.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  // `process_group`: borrowed; null for this rank alone. BatchNormOptions converts from a number of channels.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& options, comm::ProcessGroup* process_group);

  // A layer in place of `layer`: with its options, its training flag, and its very parameters and buffers, so that an
  // optimizer which has them goes on to step them.
  template <size_t D, typename Derived>
  SyncBatchNormImpl(const torch::nn::BatchNormImplBase<D, Derived>& layer, comm::ProcessGroup* process_group)
      : options(layer.options), process_group(process_group) {
    Register(layer.weight, layer.bias, layer.running_mean, layer.running_var, layer.num_batches_tracked);
    train(layer.is_training());
  }

  // `input`: [N, C, ...] of at least two dimensions; the output has its shape, dtype and memory format.
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

// Makes SyncBatchNorm layers over `group`, with the default options. `group` is borrowed.
NormFactory SyncBatchNormFactory(comm::ProcessGroup* group);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_SYNC_BATCH_NORM_H_
