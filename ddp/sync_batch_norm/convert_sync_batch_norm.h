// A model's BatchNorm layers made into SyncBatchNorm, as far as C++ can.

#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_CONVERT_SYNC_BATCH_NORM_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_CONVERT_SYNC_BATCH_NORM_H_

#include <torch/nn/module.h>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp {

// Replaces every torch::nn::BatchNorm1d, 2d and 3d under `module` by a SyncBatchNorm over `group`, and returns how
// many; torch.nn.SyncBatchNorm.convert_sync_batchnorm for what can be replaced. To be called before ddp::Wrap(), on
// every rank; nothing is sent.
//
//   torch::nn::Sequential net(torch::nn::Conv2d(3, 64, 3), torch::nn::BatchNorm2d(64), torch::nn::ReLU());
//   absl::StatusOr<int> replaced = ddp::ConvertSyncBatchNorm(*net, group.get());
//
// What can be replaced is a layer that is called through a container: a child of torch::nn::Sequential, ModuleList or
// ModuleDict (or a class derived from one), at any depth. The new layer has the old one's options, training flag and
// name, and its very parameters and buffers, so optimizers made before go on. A layer that is in several places is
// replaced by one. Code that asks a ModuleList or ModuleDict for a BatchNorm by type finds none any more: it has to ask
// for SyncBatchNorm, or for both. A holder of the old layer kept outside the module calls the old layer.
//
// What cannot: a BatchNorm that is a member of a class whose forward calls it. The member's type says which forward,
// which is not virtual, so a layer registered in its place would have the parameters and never be called. Nor `module`
// itself, nor a class derived from BatchNorm, whose forward may be its own. Then nothing is changed, and
// FailedPrecondition names all of them ("layer1.0.bn1"). Such a model takes a norm factory instead (norm_factory.h).
//
// `group` is borrowed and must outlive the layers.
absl::StatusOr<int> ConvertSyncBatchNorm(torch::nn::Module& module, comm::ProcessGroup* group);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_CONVERT_SYNC_BATCH_NORM_H_
