// Random models, options and numbers of ranks: training must be what one process does, and the same bits each time and
// over shared memory.
//
// A failure prints the line that runs its combination again. --test_env=LOCKSTEP_RANDOM_FIRST=1000 tries the hundred
// seeds from 1000 on.

#include <ATen/core/Generator.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/random_combination.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using testing::Branches;
using testing::Combination;
using testing::LayerSpec;
using testing::Mix;
using testing::RandomCombination;

constexpr int kRows = 3, kSeeds = 100;
constexpr double kTolerance = 1e-10;

struct NetImpl : torch::nn::Module {
  NetImpl(const Combination& c, uint64_t seed) : layers(c.layers), branches(c.branches) {
    auto generator = at::detail::createCPUGenerator(seed);
    const auto random = [&](at::IntArrayRef shape) {
      return at::randn(shape, generator, at::kDouble) / std::sqrt(static_cast<double>(shape.back()));
    };
    for (size_t i = 0; i < layers.size(); ++i) {
      const LayerSpec& layer = layers[i];
      const bool tied = layer.tied_to >= 0;
      const at::Tensor weight = tied ? weights[layer.tied_to] : random({layer.out, layer.in});
      const bool trained = tied ? weight.requires_grad() : !layer.frozen_weight;
      weights.push_back(register_parameter(absl::StrCat("weight", i), weight, trained));
      biases.push_back(register_parameter(absl::StrCat("bias", i), random({layer.out}), !layer.frozen_bias));
    }
    if (c.buffer) shift = register_buffer("shift", at::full({1}, 0.1, at::kDouble));
  }

  // `pass` and `rank`: what decides on the branches.
  at::Tensor forward(at::Tensor x, int64_t pass, int rank) {
    if (shift.defined()) x = x + shift;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].branch && !Takes(i, pass, rank)) continue;
      for (int time = 0; time < layers[i].times; ++time) {
        const at::Tensor y = at::tanh(at::linear(x, weights[i], biases[i]));
        x = layers[i].branch ? x + y : y;
      }
    }
    return x.pow(2).mean();
  }

  bool Takes(size_t layer, int64_t pass, int rank) const {
    if (branches == Branches::kAlways) return true;
    return Mix({static_cast<int64_t>(layer), branches == Branches::kByChance ? pass : 0, rank}) % 5 < 3;
  }

  const std::vector<LayerSpec> layers;
  const Branches branches;
  std::vector<at::Tensor> weights, biases;
  at::Tensor shift;
};
TORCH_MODULE(Net);

at::Tensor InputsOf(const Combination& c, int64_t pass, int rank) {
  return at::randn({kRows, Combination::kInputs}, at::detail::createCPUGenerator(Mix({c.seed, pass, rank})),
                   at::kDouble);
}

torch::optim::SGD Optimizer(const Combination& c, std::vector<at::Tensor> parameters) {
  return torch::optim::SGD(std::move(parameters),
                           torch::optim::SGDOptions(0.1).momentum(c.momentum).weight_decay(c.weight_decay));
}

// Each parameter once.
std::vector<at::Tensor> Once(const torch::nn::Module& module) {
  std::vector<at::Tensor> once;
  for (const at::Tensor& parameter : module.parameters()) {
    const auto is_it = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(once.begin(), once.end(), is_it)) once.push_back(parameter);
  }
  return once;
}

std::vector<at::Tensor> Copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

void Backward(const Combination& c, const at::Tensor& loss) {
  if (c.twice) loss.backward({}, /*retain_graph=*/true);
  loss.backward();
}

// What the buffer becomes in a forward. Rank 0's counts, where it is broadcast before each.
void MoveShift(const Combination& c, Net& net, int rank) {
  if (!net->shift.defined()) return;
  const bool broadcast_each_time = c.unsynced == 0 && !c.join;
  net->shift += broadcast_each_time ? 0.01 * (1 + rank) : 0.01;
}

// The parameters after each step of one process that has all ranks' inputs.
std::vector<std::vector<at::Tensor>> TrainAlone(const Combination& c) {
  Net net(c, /*seed=*/c.seed);
  auto optimizer = Optimizer(c, Once(*net));
  std::vector<std::vector<at::Tensor>> after;
  int64_t pass = 0;
  for (int step = 0; step < c.steps; ++step) {
    const auto active = std::count_if(c.steps_of_rank.begin(), c.steps_of_rank.end(), [&](int n) { return n > step; });
    optimizer.zero_grad(c.set_to_none);
    for (int i = 0; i < c.averaged * (c.unsynced + 1); ++i, ++pass) {
      for (int rank = 0; rank < c.ranks; ++rank) {
        if (c.steps_of_rank[rank] <= step) continue;
        const auto divisor = static_cast<double>(c.divide_by_initial_world_size ? c.ranks : active);
        Backward(c, net(InputsOf(c, pass, rank), pass, rank) / divisor);
      }
      MoveShift(c, net, /*rank=*/0);
    }
    optimizer.step();
    after.push_back(Copies(Once(*net)));
  }
  return after;
}

void ExpectClose(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                 const std::string& where) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = (found[i] - expected[i]).abs().max().item<double>();
    EXPECT_LE(difference, kTolerance) << where << ", parameter " << i;
  }
}

// Gradients that somebody keeps stay as they are while later steps reuse the buckets.
class OldGradients {
 public:
  void Keep(const std::vector<at::Tensor>& parameters) {
    for (const at::Tensor& parameter : parameters) {
      if (!parameter.grad().defined()) continue;
      kept_.push_back(parameter.grad());
      copies_.push_back(parameter.grad().clone());
    }
  }
  void ExpectUntouched() const {
    for (size_t i = 0; i < kept_.size(); ++i) EXPECT_TRUE(kept_[i].equal(copies_[i])) << "kept gradient " << i;
  }

 private:
  std::vector<at::Tensor> kept_, copies_;
};

// One step's backward passes; `pass` counts them.
void Accumulate(const Combination& c, DistributedDataParallel<Net>& ddp, int rank, int64_t& pass) {
  const auto once = [&] {
    Backward(c, ddp(InputsOf(c, pass, rank), pass, rank));
    MoveShift(c, ddp.module(), rank);
    ++pass;
  };
  for (int i = 0; i < c.averaged; ++i) {
    {
      const NoSync no_sync(ddp);
      for (int j = 0; j < c.unsynced; ++j) once();
    }
    once();
  }
}

// A rank's part; returns its parameters at the end.
std::vector<at::Tensor> TrainRank(const Combination& c, ProcessGroup& group,
                                  const std::vector<std::vector<at::Tensor>>& expected) {
  const bool same_start = group.rank() == 0 || !c.options.init_sync;
  auto wrapped = Wrap(Net(c, same_start ? c.seed : Mix({c.seed, group.rank()})), &group, c.options);
  EXPECT_TRUE(wrapped.ok()) << wrapped.status();
  if (!wrapped.ok()) return {};
  DistributedDataParallel<Net> ddp = *std::move(wrapped);
  if (c.hook) {
    EXPECT_EQ(ddp.RegisterHook(hooks::AllReduce(&group)), absl::OkStatus());
  }
  auto optimizer = Optimizer(c, ddp.parameters());
  JoinOptions join_options;
  join_options.enable = c.join;
  join_options.divide_by_initial_world_size = c.divide_by_initial_world_size;
  Join join({ddp}, join_options);
  OldGradients old;
  int64_t pass = 0;
  for (int step = 0; step < c.steps_of_rank[group.rank()]; ++step) {
    optimizer.zero_grad(c.set_to_none);
    Accumulate(c, ddp, group.rank(), pass);
    old.ExpectUntouched();
    if (c.keep_old_gradients) old.Keep(ddp.parameters());
    optimizer.step();
    ExpectClose(ddp.parameters(), expected[step], absl::StrCat("rank ", group.rank(), ", step ", step));
  }
  EXPECT_EQ(join.Finish(), absl::OkStatus());
  ExpectClose(ddp.parameters(), expected.back(), absl::StrCat("rank ", group.rank(), ", the end"));
  return Copies(ddp.parameters());
}

// Over a group that shares memory; rank 0's parameters.
std::vector<at::Tensor> TrainRanksOverShm(const Combination& c, const std::vector<std::vector<at::Tensor>>& expected) {
  comm::InitOptions options;
  options.backend = "shm";
  std::vector<at::Tensor> of_rank_0;
  const auto results = comm::testing::InitRanks(options, c.ranks, [&](ProcessGroup& group) {
    const auto parameters = TrainRank(c, group, expected);
    if (group.rank() == 0) of_rank_0 = parameters;
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
  return of_rank_0;
}

std::vector<std::vector<at::Tensor>> TrainRanks(const Combination& c,
                                                const std::vector<std::vector<at::Tensor>>& expected) {
  std::vector<std::vector<at::Tensor>> of_rank(c.ranks);
  EXPECT_EQ(RunRanksOk(c.ranks, [&](ProcessGroup& group) { of_rank[group.rank()] = TrainRank(c, group, expected); }),
            absl::OkStatus());
  return of_rank;
}

void ExpectSameBits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, const std::string& who) {
  ASSERT_EQ(a.size(), b.size()) << who;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << who << ", parameter " << i;
}

int FirstSeed() {
  const char* const first = std::getenv("LOCKSTEP_RANDOM_FIRST");
  return first ? std::atoi(first) : 0;
}

class RandomCombinations : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCombinations, ::testing::Range(FirstSeed(), FirstSeed() + kSeeds),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(RandomCombinations, TrainAsOneProcessWouldAndToTheSameBitsAgain) {
  const Combination c = RandomCombination(GetParam());
  const auto expected = TrainAlone(c);
  const auto of_rank = TrainRanks(c, expected);
  for (int rank = 1; rank < c.ranks; ++rank) ExpectSameBits(of_rank[rank], of_rank[0], absl::StrCat("rank ", rank));
  ExpectSameBits(TrainRanks(c, expected)[0], of_rank[0], "the second run");
  ExpectSameBits(TrainRanksOverShm(c, expected), of_rank[0], "over shared memory");
  // A SCOPED_TRACE would not reach the ranks' threads.
  if (HasFailure()) ADD_FAILURE() << Describe(c);
}

TEST(RandomCombination, AHundredOfThemUseEveryOptionSeveralTimes) {
  std::map<std::string, int> uses;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Combination c = RandomCombination(seed);
    uses["bucket_cap_mb"] += c.options.bucket_cap_mb.has_value();
    uses["bucket_cap_mb_list"] += !c.options.bucket_cap_mb_list.empty();
    uses["find_unused_parameters"] += c.options.find_unused_parameters;
    uses["static_graph"] += c.options.static_graph;
    uses["skip_all_reduce_unused_params"] += c.options.skip_all_reduce_unused_params;
    uses["gradient_as_bucket_view"] += c.options.gradient_as_bucket_view;
    uses["no init_sync"] += !c.options.init_sync;
    uses["non_finite"] += c.options.non_finite == NonFinite::kReport;
    uses["delayed"] += !c.options.delay_all_reduce_named_params.empty();
    uses["hook"] += c.hook;
    uses["NoSync"] += c.unsynced > 0;
    uses["Join"] += c.join && c.ranks > 1;
    uses["Join by those that have inputs"] += c.join && c.ranks > 1 && !c.divide_by_initial_world_size;
    uses["several backward passes"] += c.averaged > 1 || c.twice;
    uses["buffers"] += c.buffer;
    uses["branches by chance"] += c.branches == Branches::kByChance && c.ranks > 1;
    uses["branches never taken"] += c.branches == Branches::kSomeNever && c.ranks > 1;
    uses["tied"] += std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.tied_to >= 0; });
    uses["used twice"] += std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.times > 1; });
    uses["frozen"] += std::any_of(c.layers.begin(), c.layers.end(), [](const auto& l) { return l.frozen_weight; });
  }
  for (const auto& [what, times] : uses) EXPECT_GE(times, 4) << what;
}

}  // namespace
}  // namespace lockstep::ddp
