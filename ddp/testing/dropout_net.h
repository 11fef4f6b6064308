// A network whose result depends on random numbers and buffers, for tests that compare trainings of processes.

#ifndef LOCKSTEP_DDP_TESTING_DROPOUT_NET_H_
#define LOCKSTEP_DDP_TESTING_DROPOUT_NET_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace lockstep::ddp::testing {

struct DropoutNetImpl : torch::nn::Module {
  DropoutNetImpl(int64_t in, int64_t hidden, int64_t out)
      : first(register_module("first", torch::nn::Linear(in, hidden))),
        norm(register_module("norm", torch::nn::BatchNorm1d(hidden))),
        second(register_module("second", torch::nn::Linear(hidden, out))) {}
  at::Tensor forward(const at::Tensor& x) {
    return second(
        torch::nn::functional::dropout(norm(first(x)).relu(), torch::nn::functional::DropoutFuncOptions().p(0.5)));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(DropoutNet);

// FNV-1a over the bytes of parameters and buffers.
inline uint64_t Digest(const torch::nn::Module& module) {
  uint64_t digest = 0xcbf29ce484222325;
  const auto add = [&digest](const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous().flatten().view(at::kByte);
    for (int64_t i = 0; i < bytes.numel(); ++i)
      digest = (digest ^ static_cast<const uint8_t*>(bytes.const_data_ptr())[i]) * 0x100000001b3;
  };
  for (const at::Tensor& parameter : module.parameters()) add(parameter);
  for (const at::Tensor& buffer : module.buffers()) add(buffer);
  return digest;
}

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_DROPOUT_NET_H_
