// The headers on which most tests of LibTorch's users spend their compile time. More of torch/torch.h would slow down
// every test: template instantiations are not precompiled, but compiled in each source.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
