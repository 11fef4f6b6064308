#include "lockstep/models/channels_last.h"

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <torch/nn/module.h>

namespace lockstep::models {
namespace {

void ToChannelsLast(at::Tensor tensor) {
  if (tensor.defined() && tensor.dim() == 4) tensor.set_data(tensor.contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace

void ToChannelsLast(torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    ToChannelsLast(parameter);
    ToChannelsLast(parameter.grad());
  }
  for (const at::Tensor& buffer : module.buffers()) ToChannelsLast(buffer);
}

}  // namespace lockstep::models
