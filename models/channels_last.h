// Converts modules to the memory format in which convolutions are fastest.

#ifndef LOCKSTEP_MODELS_CHANNELS_LAST_H_
#define LOCKSTEP_MODELS_CHANNELS_LAST_H_

namespace torch::nn {
class Module;
}

namespace lockstep::models {

// Python's module.to(memory_format=torch.channels_last), which LibTorch lacks. Changes the strides of the module's
// four-dimensional parameters, gradients and buffers to at::MemoryFormat::ChannelsLast. Values, shapes and the identity
// of the tensors do not change, so existing optimizers stay valid. Call it before ddp::Wrap(), on every rank.
//
//   models::ToChannelsLast(*net);
//   const at::Tensor logits = net(images.contiguous(at::MemoryFormat::ChannelsLast));
//
// The output of torch::nn::Conv2d, and of the layers that follow it, has the format of the input. If either the images
// or the weights have this format, everything after the first convolution has it. Results with and without it agree up
// to rounding.
void ToChannelsLast(torch::nn::Module& module);

}  // namespace lockstep::models

#endif  // LOCKSTEP_MODELS_CHANNELS_LAST_H_
