// The headers on which LibTorch's users spend most of their compile time. More of torch/torch.h would slow down every
// source: template instantiations are not precompiled, but compiled in each source.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
