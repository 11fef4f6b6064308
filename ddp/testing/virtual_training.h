// A network and a training for tests of DistributedDataParallel's virtual ranks.

#ifndef LOCKSTEP_DDP_TESTING_VIRTUAL_TRAINING_H_
#define LOCKSTEP_DDP_TESTING_VIRTUAL_TRAINING_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/options.h"

namespace lockstep::ddp::testing {

// The input of one forward pass.
struct VirtualInput {
  at::Tensor images;
  at::Tensor words;
  int branch = 2;  // 0, 1, or both
};

// Convolution, BatchNorm, an embedding, and branches of which a virtual rank may use some. Always with the same
// parameters.
struct VirtualNetImpl : torch::nn::Module {
  explicit VirtualNetImpl(bool sparse = false);
  at::Tensor forward(const at::Tensor& images, const at::Tensor& words, int branch);
  torch::nn::Conv2d convolution;
  torch::nn::BatchNorm2d norm;
  torch::nn::Embedding embedding;
  torch::nn::Linear head, even, odd;
};
TORCH_MODULE(VirtualNet);

struct VirtualCase {
  static constexpr int kSteps = 4;

  Options options;
  bool sparse = false;      // the embedding's gradients
  bool branches = false;    // virtual ranks use different parameters
  int parts = 1;            // backward passes of a virtual rank
  bool set_to_none = true;  // zero_grad
  std::vector<int> counts;  // under a Join: of each virtual rank's inputs
  bool divide_by_initial_world_size = true;
  std::function<CommunicationHook(comm::ProcessGroup* group)> hook;
  std::string backend = "threads";
};

VirtualInput InputOf(const VirtualCase& c, int step, int virtual_rank, int part = 0);
at::Tensor LossOf(const at::Tensor& output);

// Returns the loss of a VirtualNet or its DistributedDataParallel.
template <typename Forward>
at::Tensor LossOf(Forward& forward, const VirtualInput& input) {
  return LossOf(forward(input.images, input.words, input.branch));
}

torch::optim::SGD MomentumSgd(const std::vector<at::Tensor>& parameters);

// Parameters, gradients, momenta and buffers.
using State = std::vector<at::Tensor>;
State StateOf(const VirtualNet& net, torch::optim::SGD& optimizer);

// The sum of the leaves, of which there is one at least, by the definition of comm::SumTree.
at::Tensor SumInTree(const std::vector<at::Tensor>& leaves);

// A step of this rank's virtual ranks.
void TrainStep(DistributedDataParallel<VirtualNet>& ddp, torch::optim::SGD& optimizer, int step, const VirtualCase& c);

// Rank 0's state after training on `ranks` ranks, which is also the others', except for buffers between steps. Under a
// Join: of parameters and buffers alone.
State Train(int ranks, const VirtualCase& c);

// Trains on 1 to `virtual_ranks` ranks.
void ExpectSameOnAnyNumberOfRanks(int virtual_ranks, VirtualCase c, const std::string& what);

}  // namespace lockstep::ddp::testing

#endif  // LOCKSTEP_DDP_TESTING_VIRTUAL_TRAINING_H_
