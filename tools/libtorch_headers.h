// What most tests of LibTorch's users spend their compile on. More of torch/torch.h would cost every test more: what
// its templates instantiate is not precompiled, but compiled in each source anew.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
