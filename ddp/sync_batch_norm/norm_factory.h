// Factories of normalisation layers. With one, the code that creates a model chooses its normalisation.

#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_NORM_FACTORY_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_NORM_FACTORY_H_

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>

namespace lockstep::ddp {

// Creates a new layer for inputs with `channels` channels. A model stores and calls the layer as an AnyModule, since a
// member of type torch::nn::BatchNorm2d cannot be another layer:
//
//   struct BlockImpl : torch::nn::Module {
//     BlockImpl(int64_t channels, const ddp::NormFactory& norm) : norm1(norm(channels)) {
//       register_module("norm1", norm1.ptr());
//     }
//     at::Tensor forward(const at::Tensor& x) { return norm1.forward(x); }
//     torch::nn::AnyModule norm1;
//   };
using NormFactory = std::function<torch::nn::AnyModule(int64_t channels)>;

// Creates torch::nn::BatchNorm2d layers with the default options, which use the statistics of each rank's own batch.
NormFactory BatchNorm2dFactory();

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_NORM_FACTORY_H_
