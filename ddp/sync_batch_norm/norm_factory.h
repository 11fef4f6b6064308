// How a model makes its normalisation layers, so that whoever builds the model decides which.

#ifndef LOCKSTEP_DDP_SYNC_BATCH_NORM_NORM_FACTORY_H_
#define LOCKSTEP_DDP_SYNC_BATCH_NORM_NORM_FACTORY_H_

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>

namespace lockstep::ddp {

// Makes a new layer for inputs of `channels` channels. A model takes one and calls what it makes through the AnyModule,
// since a member of type torch::nn::BatchNorm2d can never be another layer:
//
//   struct BlockImpl : torch::nn::Module {
//     BlockImpl(int64_t channels, const ddp::NormFactory& norm) : norm1(norm(channels)) {
//       register_module("norm1", norm1.ptr());
//     }
//     at::Tensor forward(const at::Tensor& x) { return norm1.forward(x); }
//     torch::nn::AnyModule norm1;
//   };
using NormFactory = std::function<torch::nn::AnyModule(int64_t channels)>;

// Makes torch::nn::BatchNorm2d layers with the default options: statistics of each rank's own batch.
NormFactory BatchNorm2dFactory();

}  // namespace lockstep::ddp

#endif  // LOCKSTEP_DDP_SYNC_BATCH_NORM_NORM_FACTORY_H_
