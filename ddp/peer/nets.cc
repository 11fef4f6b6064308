#include "lockstep/ddp/peer/nets.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/activation.h>

#include <limits>

#include "absl/strings/str_cat.h"

namespace lockstep::ddp::peer {
namespace {

constexpr int64_t kBatch = 8, kFeatures = 32, kHidden = 64, kClasses = 10;

Batch DrawFeatures(at::Generator& generator) {
  Batch batch;
  batch.inputs = at::randn({kBatch, kFeatures}, generator);
  batch.targets = at::randint(kClasses, {kBatch}, generator, at::kLong);
  return batch;
}

}  // namespace

at::Generator BatchGenerator(int64_t micro_step, int rank) {
  return at::detail::createCPUGenerator(static_cast<uint64_t>(64 * micro_step + rank));
}

MlpImpl::MlpImpl()
    : layers(register_module("layers", torch::nn::Sequential(torch::nn::Linear(kFeatures, kHidden), torch::nn::ReLU(),
                                                             torch::nn::Linear(kHidden, kHidden), torch::nn::ReLU(),
                                                             torch::nn::Linear(kHidden, kHidden), torch::nn::ReLU(),
                                                             torch::nn::Linear(kHidden, kClasses)))) {}

Batch MlpImpl::Draw(int64_t micro_step, int rank) {
  at::Generator generator = BatchGenerator(micro_step, rank);
  return DrawFeatures(generator);
}

AttentionBlockImpl::AttentionBlockImpl(int64_t width, int64_t heads)
    : heads(heads),
      norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
      qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
      out(register_module("out", torch::nn::Linear(width, width))),
      norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
      up(register_module("up", torch::nn::Linear(width, 2 * width))),
      down(register_module("down", torch::nn::Linear(2 * width, width))) {}

at::Tensor AttentionBlockImpl::forward(at::Tensor x, const at::Tensor& mask) {
  const int64_t batch = x.size(0), length = x.size(1), width = x.size(2), head = width / heads;
  std::vector<at::Tensor> parts = qkv(norm1(x)).chunk(3, -1);
  for (at::Tensor& part : parts) part = part.reshape({batch, length, heads, head}).transpose(1, 2);
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(-2, -1)) * 0.25 + mask;
  const at::Tensor mixed = at::matmul(at::softmax(scores, -1), parts[2]);
  x = x + out(mixed.transpose(1, 2).reshape({batch, length, width}));
  return x + down(at::gelu(up(norm2(x))));
}

TransformerImpl::TransformerImpl()
    : embedding(register_module("embedding", torch::nn::Embedding(kTokens, kWidth))),
      position(register_parameter("position", at::zeros({kLength, kWidth}))),
      output(register_parameter("output", embedding->weight)) {
  for (int i = 0; i < 2; ++i)
    blocks.push_back(register_module(absl::StrCat("block", i), AttentionBlock(kWidth, kHeads)));
}

at::Tensor TransformerImpl::forward(const Batch& batch) {
  const at::Tensor mask = at::full({kLength, kLength}, -std::numeric_limits<float>::infinity()).triu(1);
  at::Tensor x = embedding(batch.inputs) + position;
  for (AttentionBlock& block : blocks) x = block->forward(x, mask);
  return at::linear(x, output).flatten(0, 1);
}

Batch TransformerImpl::Draw(int64_t micro_step, int rank) {
  at::Generator generator = BatchGenerator(micro_step, rank);
  const at::Tensor tokens = at::randint(kTokens, {4, kLength + 1}, generator, at::kLong);
  Batch batch;
  batch.inputs = tokens.narrow(1, 0, kLength);
  batch.targets = tokens.narrow(1, 1, kLength).flatten();
  return batch;
}

BranchesImpl::BranchesImpl()
    : trunk(register_module("trunk", torch::nn::Linear(kFeatures, kHidden))),
      branch0(register_module("branch0", torch::nn::Linear(kHidden, kHidden))),
      branch1(register_module("branch1", torch::nn::Linear(kHidden, kHidden))),
      branch2(register_module("branch2", torch::nn::Linear(kHidden, kHidden))),
      never(register_module("never", torch::nn::Linear(kHidden, kHidden))),
      head(register_module("head", torch::nn::Linear(kHidden, kClasses))) {}

at::Tensor BranchesImpl::forward(const Batch& batch) {
  torch::nn::Linear branch = batch.branch == 0 ? branch0 : batch.branch == 1 ? branch1 : branch2;
  return head(at::relu(branch(at::relu(trunk(batch.inputs)))));
}

Batch BranchesImpl::Draw(int64_t micro_step, int rank) {
  at::Generator generator = BatchGenerator(micro_step, rank);
  Batch batch = DrawFeatures(generator);
  batch.branch = micro_step % 4 == 3 ? 0 : (micro_step + rank) % 3;  // each fourth step all ranks use one branch
  return batch;
}

RecurrentImpl::RecurrentImpl()
    : first(register_module("first", torch::nn::Linear(kFeatures, kHidden))),
      twice(register_module("twice", torch::nn::Linear(kHidden, kHidden))),
      never(register_module("never", torch::nn::Linear(kHidden, kHidden))),
      head(register_module("head", torch::nn::Linear(kHidden, kClasses))) {}

at::Tensor RecurrentImpl::forward(const Batch& batch) {
  at::Tensor x = at::relu(first(batch.inputs));
  x = at::relu(twice(x));
  x = at::relu(twice(x));
  return head(x);
}

WordsImpl::WordsImpl()
    : words(register_module("words", torch::nn::Embedding(torch::nn::EmbeddingOptions(kTokens, kWidth).sparse(true)))),
      bag(register_module("bag", torch::nn::EmbeddingBag(
                                     torch::nn::EmbeddingBagOptions(kTokens, kWidth).mode(torch::kSum).sparse(true)))),
      hidden(register_module("hidden", torch::nn::Linear(kWidth, kHidden))),
      head(register_module("head", torch::nn::Linear(kHidden, kClasses))) {}

at::Tensor WordsImpl::forward(const Batch& batch) {
  const at::Tensor x = at::tanh(words(batch.inputs)).sum(1) + bag(batch.inputs);
  return head(at::relu(hidden(x)));
}

Batch WordsImpl::Draw(int64_t micro_step, int rank) {
  at::Generator generator = BatchGenerator(micro_step, rank);
  Batch batch;
  batch.inputs = at::randint(kTokens, {kBatch, kLength}, generator, at::kLong);
  batch.targets = at::randint(kClasses, {kBatch}, generator, at::kLong);
  return batch;
}

Batch DrawImages(int64_t micro_step, int rank) {
  at::Generator generator = BatchGenerator(micro_step, rank);
  Batch batch;
  batch.inputs = at::randn({4, 3, 32, 32}, generator);
  batch.targets = at::randint(kClasses, {4}, generator, at::kLong);
  return batch;
}

}  // namespace lockstep::ddp::peer
