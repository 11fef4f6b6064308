// Replaces the BatchNorm layers of a model by SyncBatchNorm, where C++ allows it.

#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_CONVERT_SYNC_BATCH_NORM_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_CONVERT_SYNC_BATCH_NORM_H_

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace torch::nn {
class Module;
}

namespace lockstep::ddp {

// Replaces every torch::nn::BatchNorm1d, 2d and 3d under `module` by a SyncBatchNorm over `group`, and returns how
// many. This is torch.nn.SyncBatchNorm.convert_sync_batchnorm for layers that can be replaced. Call it before
// ddp::Wrap(), on every rank. It sends nothing.
//
//   torch::nn::Sequential net(torch::nn::Conv2d(3, 64, 3), torch::nn::BatchNorm2d(64), torch::nn::ReLU());
//   absl::StatusOr<int> replaced = ddp::ConvertSyncBatchNorm(*net, group.get());
//
// A layer can be replaced if it is called through a container: it is a child of torch::nn::Sequential, ModuleList or
// ModuleDict (or of a class derived from one), at any depth. The new layer has the options, training flag and name of
// the old one, and the same parameter and buffer tensors, so existing optimizers stay valid. If one layer is in several
// places, one new layer replaces it in all of them. Code that gets a BatchNorm by type from a ModuleList or ModuleDict
// no longer finds it: it must ask for SyncBatchNorm. A holder of the old layer outside the module still calls the old
// layer.
//
// A BatchNorm that is a typed member of a class cannot be replaced. The member's type determines which forward is
// called, and forward is not virtual, so a layer registered in its place would never be called. Neither `module` itself
// nor a class derived from BatchNorm, which may have another forward, can be replaced. If there is such a layer,
// nothing changes, and FailedPrecondition names all of them ("layer1.0.bn1"). Let such a model take a norm factory
// instead (norm_factory.h).
//
// The batch normalisation of a program that Python exported (models/exported) cannot be replaced either: it is an
// operator of the program. FailedPrecondition names each layer.
//
// `group` is borrowed and must outlive the layers.
absl::StatusOr<int> ConvertSyncBatchNorm(torch::nn::Module& module, comm::ProcessGroup* group);

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_CONVERT_SYNC_BATCH_NORM_H_
