// libtorch_headers.h's headers, GoogleTest, and for clang all of LibTorch, of which tests use more than libraries do.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#ifdef __clang__
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
