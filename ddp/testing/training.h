// Nets, batches and comparisons for tests of DistributedDataParallel, in double. The reference is one process that
// trains on the whole batch.

#ifndef LOCKSTEP_DDP_TESTING_TRAINING_H_
#define LOCKSTEP_DDP_TESTING_TRAINING_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp::testing {

struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t in, int64_t hidden, int64_t out);
  at::Tensor forward(const at::Tensor& x);
  torch::nn::Linear first, second;
};
TORCH_MODULE(Mlp);

// 4 inputs, 3 outputs, double. Equal seeds give equal parameters.
Mlp SeededMlp(uint64_t seed, int64_t hidden = 5);

using Used = std::vector<int>;

// Has parameters "branch0", "branch1", ... of shape [4]. The argument `used` of forward selects the ones to use.
struct BranchesImpl : torch::nn::Module {
  explicit BranchesImpl(int count);
  at::Tensor forward(const at::Tensor& x, const Used& used);
  std::vector<at::Tensor> weights;
};
TORCH_MODULE(Branches);

// The whole batch of a step.
at::Tensor Batch(int64_t rows, int64_t columns, int step);

// Rank r's part: every n-th row from the r-th on, for n ranks.
at::Tensor Share(const at::Tensor& batch, int rank, int ranks);
at::Tensor Share(const at::Tensor& batch, const comm::ProcessGroup& group);

// Runs the body on this many ranks, and expects that it throws on none.
void OnRanks(int ranks, const std::function<void(comm::ProcessGroup& group)>& body);

// Calls Wrap() and throws its error.
template <typename Net>
DistributedDataParallel<Net> Wrapped(Net net, comm::ProcessGroup& group, const Options& options = {}) {
  auto ddp = Wrap(std::move(net), &group, options);
  ThrowIfError(ddp.status());
  return *std::move(ddp);
}

// Options that reduce gradients in different ways. In all but the last one each gradient has a bucket.
std::vector<Options> EveryWay();

// The exception of f() as a status.
template <typename F>
absl::Status Thrown(F&& f) {
  return TorchStatus("", std::forward<F>(f));
}

// Copies of the parameters' gradients; undefined if there is none.
std::vector<at::Tensor> Gradients(const std::vector<at::Tensor>& parameters);

// Expects that each differs from its counterpart by at most `tolerance`, and that the same ones are undefined.
void ExpectClose(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                 double tolerance = 1e-12);

// Expects the same dtypes, sizes and bytes, so that NaNs are compared too, and that the same ones are undefined. A
// sparse tensor is compared as the dense one.
void ExpectSameBits(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected,
                    const std::string& what);

// The branches that a rank uses in a step.
using Plan = std::function<Used(int rank, int step)>;

// Trains four Branches with SGD and momentum on `ranks` ranks, and in one process with the mean of the ranks' losses.
// Expects equal gradients in each of `steps` steps, and equal parameters at the end.
void ExpectTrainsAsOneProcess(int ranks, const Options& options, bool set_to_none, const Plan& plan, int steps = 6);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_TRAINING_H_
