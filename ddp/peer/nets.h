// The networks and inputs that trainer.cc and Python (nets.py) both train, with the same operations in the same order.

#ifndef LOCKSTEP_DDP_PEER_NETS_H_
#define LOCKSTEP_DDP_PEER_NETS_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

namespace lockstep::ddp::peer {

// One rank's samples for one forward and backward.
struct Batch {
  at::Tensor inputs, targets;
  int64_t branch = 0;  // branch of BranchesImpl to use
};

// The generator of a rank's batch. Its seed is 64 * micro_step + rank, and micro_step counts backward passes.
at::Generator BatchGenerator(int64_t micro_step, int rank);

// Four linear layers.
struct MlpImpl : torch::nn::Module {
  MlpImpl();
  at::Tensor forward(const Batch& batch) { return layers->forward(batch.inputs); }
  static Batch Draw(int64_t micro_step, int rank);
  torch::nn::Sequential layers;
};
TORCH_MODULE(Mlp);

struct AttentionBlockImpl : torch::nn::Module {
  AttentionBlockImpl(int64_t width, int64_t heads);
  at::Tensor forward(at::Tensor x, const at::Tensor& mask);
  int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear qkv, out;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear up, down;
};
TORCH_MODULE(AttentionBlock);

// A causal language model whose output projection is its embedding.
struct TransformerImpl : torch::nn::Module {
  static constexpr int64_t kTokens = 50, kWidth = 32, kHeads = 2, kLength = 12;
  TransformerImpl();
  at::Tensor forward(const Batch& batch);
  static Batch Draw(int64_t micro_step, int rank);
  torch::nn::Embedding embedding;
  at::Tensor position, output;  // output: embedding's weight
  std::vector<AttentionBlock> blocks;
};
TORCH_MODULE(Transformer);

// A step uses one of the branches, which differs between ranks and steps. No step uses `never`.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl();
  at::Tensor forward(const Batch& batch);
  static Batch Draw(int64_t micro_step, int rank);
  torch::nn::Linear trunk, branch0, branch1, branch2, never, head;
};
TORCH_MODULE(Branches);

// A layer that each step uses twice, and one that no step uses.
struct RecurrentImpl : torch::nn::Module {
  RecurrentImpl();
  at::Tensor forward(const Batch& batch);
  static Batch Draw(int64_t micro_step, int rank) { return MlpImpl::Draw(micro_step, rank); }
  torch::nn::Linear first, twice, never, head;
};
TORCH_MODULE(Recurrent);

// Two embeddings with sparse gradients. A batch contains tokens several times.
struct WordsImpl : torch::nn::Module {
  static constexpr int64_t kTokens = 50, kWidth = 32, kLength = 12;
  WordsImpl();
  at::Tensor forward(const Batch& batch);
  static Batch Draw(int64_t micro_step, int rank);
  torch::nn::Embedding words;
  torch::nn::EmbeddingBag bag;
  torch::nn::Linear hidden, head;
};
TORCH_MODULE(Words);

// For models::ResNet with ten classes: four images of 32 by 32.
Batch DrawImages(int64_t micro_step, int rank);

}  // namespace lockstep::ddp::peer

#endif  // LOCKSTEP_DDP_PEER_NETS_H_
