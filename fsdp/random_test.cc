// Random networks, options and numbers of ranks have the bits of DistributedDataParallel on one rank.
// LOCKSTEP_RANDOM_FIRST of the environment is the first seed, 0 by default. With LOCKSTEP_RANDOM_ALL a network is trained
// on each number of ranks at each place, else on one of them at each place.

#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/models/recompute/recompute.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int kSeeds = 4, kVirtualRanks = 8, kSteps = 3, kWords = 23;
constexpr char kTwoHosts[] = "two hosts";

// A number in [0, below), the same on every platform.
int Draw(std::mt19937& random, int below) { return static_cast<int>(random() % below); }

// x + f(x), of shape 2 x 5 x width, with one of several f.
struct BlockImpl : torch::nn::Module {
  BlockImpl(std::mt19937& random, int width) : kind(Draw(random, 5)), recomputes(Draw(random, 4) == 0) {
    using namespace torch::nn;  // NOLINT
    if (kind == 0) linear = register_module("linear", Linear(width, width));
    if (kind == 1) lstm = register_module("lstm", LSTM(LSTMOptions(width, width).batch_first(true)));
    if (kind == 2) attention = register_module("attention", MultiheadAttention(MultiheadAttentionOptions(width, 2)));
    if (kind == 3) conv = register_module("conv", Conv1d(Conv1dOptions(width, width, 3).padding(1)));
    norm = register_module("norm", LayerNorm(LayerNormOptions({width})));
    for (const at::Tensor& parameter : parameters()) {
      if (Draw(random, 6) == 0) at::Tensor(parameter).set_requires_grad(false);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return recomputes ? models::Recompute([this](const at::Tensor& x) { return Run(x); }, x) : Run(x);
  }
  at::Tensor Run(const at::Tensor& x) {
    const at::Tensor y = norm(x);
    if (kind == 0) return x + linear(y).tanh();
    if (kind == 1) return x + std::get<0>(lstm(y));
    if (kind == 2) return x + std::get<0>(attention(y, y, y));
    if (kind == 3) return x + conv(y.transpose(1, 2)).transpose(1, 2);
    return x + y.tanh();
  }
  const int kind;
  const bool recomputes;
  torch::nn::Linear linear{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::MultiheadAttention attention{nullptr};
  torch::nn::Conv1d conv{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::mt19937 random) {
    const int width = 2 * (3 + Draw(random, 9));
    embedding = register_module("embedding", torch::nn::Embedding(kWords, width));
    for (int i = 1 + Draw(random, 4); i > 0; --i) blocks->push_back(Block(random, width));
    register_module("blocks", blocks);
    if (Draw(random, 2) == 0) register_module("unused", torch::nn::Linear(width, 3));
    if (Draw(random, 2) == 0) {
      head = register_parameter("head", embedding->weight);
    } else {
      head = register_parameter("head", at::zeros({kWords, width}));
    }
    const torch::NoGradGuard no_grad;  // ranks are threads, which share the default generator
    for (const at::Tensor& parameter : parameters()) {
      const at::Tensor numbers = at::arange(parameter.numel(), at::kFloat).add(parameter.numel());
      at::Tensor(parameter).copy_(numbers.mul(12.9898).sin().mul(0.3).view(parameter.sizes()));
    }
  }
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embedding(tokens);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return at::linear(x, head);
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::ModuleList blocks;
  at::Tensor head;
};
TORCH_MODULE(Net);

at::Tensor LossOf(const at::Tensor& output) { return output.sin().square().mean(); }

at::Tensor Tokens(int step, int virtual_rank) {
  return at::arange(2 * 5, at::kLong).mul(step + 3).add(virtual_rank * 7).remainder(kWords).view({2, 5});
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(int kind, const Tensors& parameters) {
  if (kind == 0) return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9).fused(true));
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01).fused(kind == 1));
}

// The parameters at the end, by rank. `place`: a backend, or kTwoHosts.
std::vector<Tensors> Train(int ranks, const std::string& place,
                           const std::function<absl::Status(comm::ProcessGroup&, Tensors&)>& train) {
  std::vector<Tensors> results(ranks);
  const auto body = [&](comm::ProcessGroup& group) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(train(group, results[group.rank()]));
    return group.Barrier();
  };
  std::vector<int> host_of(ranks, 1);
  std::fill_n(host_of.begin(), (ranks + 1) / 2, 0);
  const auto statuses = place == kTwoHosts ? testing::OnHosts(host_of, body) : testing::OnRanks(ranks, place, body);
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  return results;
}

void Copy(const Tensors& from, Tensors& to) {
  for (const at::Tensor& tensor : from) to.push_back(tensor.detach().clone());
}

Tensors TrainReplicated(const std::mt19937& random, int optimizer_kind, bool clip) {
  return Train(1, "shm", [&](comm::ProcessGroup& group, Tensors& result) -> absl::Status {
    ddp::Options options;
    options.virtual_ranks = kVirtualRanks;
    options.find_unused_parameters = true;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(Net(random), &group, options));
    const auto optimizer = MakeOptimizer(optimizer_kind, net.parameters());
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      for (const int v : net.VirtualRanks(step)) LossOf(net(Tokens(step, v))).backward();
      if (clip) LOCKSTEP_RETURN_IF_ERROR(ddp::ClipGradNorm(group, net.parameters(), 0.01).status());
      optimizer->step();
    }
    Copy(net.parameters(), result);
    return absl::OkStatus();
  })[0];
}

std::vector<Tensors> TrainSharded(const std::mt19937& random, int optimizer_kind, bool clip, int ranks,
                                  const std::string& place, const Options& options) {
  return Train(ranks, place, [&](comm::ProcessGroup& group, Tensors& result) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Net(random), &group, options));
    const auto optimizer = MakeOptimizer(optimizer_kind, net.shards());
    for (int step = 0; step < kSteps; ++step) {
      for (const int v : net.VirtualRanks(step)) LossOf(net(Tokens(step, v))).backward();
      if (clip) LOCKSTEP_RETURN_IF_ERROR(net.ClipGradNorm(0.01).status());
      LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
    Copy(net.parameters(), result);
    return absl::OkStatus();
  });
}

struct Training {
  std::string place;
  Residency residency;
  int ranks;
};

std::vector<Training> Trainings(std::mt19937& random) {
  std::vector<Training> trainings;
  for (const auto& [place, residency] : {std::pair("shm", Residency::kSharedPages),
                                         {"shm", Residency::kPaged},
                                         {"gloo", Residency::kPaged},
                                         {kTwoHosts, Residency::kPaged}}) {
    constexpr int kRanks[] = {1, 2, 3, 4, 6, 8};
    const int drawn = kRanks[Draw(random, std::size(kRanks))];
    for (const int ranks : kRanks) {
      if (std::getenv("LOCKSTEP_RANDOM_ALL") || ranks == drawn) trainings.push_back({place, residency, ranks});
    }
  }
  return trainings;
}

TEST(FullyShardedRandom, NetworksHaveTheBitsOfDistributedDataParallel) {
  const char* const first = std::getenv("LOCKSTEP_RANDOM_FIRST");
  for (int seed = first ? std::atoi(first) : 0, last = seed + kSeeds; seed < last; ++seed) {
    std::mt19937 random(seed);
    const std::mt19937 of_net(random());
    const int optimizer_kind = Draw(random, 3);
    const bool clip = Draw(random, 2) == 0;
    const Tensors expected = TrainReplicated(of_net, optimizer_kind, clip);
    for (const auto& [place, residency, ranks] : Trainings(random)) {
      Options options;
      options.residency = residency;
      options.virtual_ranks = kVirtualRanks;
      options.whole_units = 1 + Draw(random, 3);
      if (Draw(random, 2) == 0) options.units = {Draw(random, 2) == 0 ? "blocks" : "blocks.*"};
      options.unit_bytes = int64_t{256} << Draw(random, 6);
      const bool is_hybrid = Draw(random, 2) == 0 && (place != kTwoHosts || ranks % 2 == 0);
      if (is_hybrid) options.sharding_strategy = ShardingStrategy::kHybridShard;
      SCOPED_TRACE(absl::StrCat("LOCKSTEP_RANDOM_FIRST=", seed, ", ", ranks, " ranks over ", place,
                                residency == Residency::kPaged ? ", paged" : "", is_hybrid ? ", hybrid" : "",
                                ", units of ", options.unit_bytes, " bytes"));
      for (const Tensors& found : TrainSharded(of_net, optimizer_kind, clip, ranks, place, options)) {
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].equal(expected[i])) << "parameter " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::fsdp
