// Modules in the memory format that convolutions are fastest in.

#ifndef LOCKSTEP_MODELS_CHANNELS_LAST_H_
#define LOCKSTEP_MODELS_CHANNELS_LAST_H_

#include <torch/nn/module.h>

namespace lockstep::models {

// Python's module.to(memory_format=torch.channels_last), which LibTorch lacks: gives the module's parameters, their
// gradients and its buffers strides of at::MemoryFormat::ChannelsLast where they have four dimensions. Values, shapes
// and the tensors' identity stay, so optimizers made before go on. Call it before ddp::Wrap(), on every rank.
//
//   models::ToChannelsLast(*net);
//   const at::Tensor logits = net(images.contiguous(at::MemoryFormat::ChannelsLast));
//
// torch::nn::Conv2d, and the layers that follow it, give what they got: images in this format, or weights, are enough
// for all that comes after a convolution to be in it. Networks with and without it agree but for rounding.
void ToChannelsLast(torch::nn::Module& module);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_CHANNELS_LAST_H_
