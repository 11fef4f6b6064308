// Random models, options, numbers of virtual ranks and numbers of ranks: training has the bits of one process that adds
// the virtual ranks' gradients in the order of comm::SumTree.
//
// A failure prints the line that runs its combination again. --test_env=LOCKSTEP_RANDOM_FIRST=1000 tries the hundred
// seeds from 1000 on.

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/gradient_allocator.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/random_combination.h"
#include "lockstep/ddp/testing/random_net.h"
#include "lockstep/ddp/testing/training.h"
#include "lockstep/ddp/testing/virtual_training.h"

namespace lockstep::ddp {
namespace {

using testing::BranchUse;
using testing::Combination;
using testing::Copies;
using testing::ExpectSameBits;
using testing::FirstSeed;
using testing::InputsOf;
using testing::Once;
using testing::Optimizer;
using testing::RandomNet;
using testing::RandomVirtualCombination;
using testing::SumInTree;
using testing::VirtualRun;

constexpr int kSeeds = 100;

// The default generator as it was seeded for a step and a virtual rank.
using Generators = std::map<std::pair<int, int>, at::Generator>;

// At the end.
struct State {
  std::vector<at::Tensor> trained;  // parameters, gradients and momenta
  std::vector<at::Tensor> buffers;
};

State StateOf(const RandomNet& net, torch::optim::SGD& optimizer) {
  State state;
  state.trained = Copies(Once(*net));
  for (const at::Tensor& parameter : Once(*net)) {
    state.trained.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    state.trained.push_back(static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer().clone());
  }
  state.buffers = Copies(net->buffers());
  return state;
}

// Calls `body` for each virtual rank of this rank. Its generator has the seed of the default generator, which the ranks
// cannot use: they are threads and share it.
template <typename Body>
void ForEachVirtualRank(DistributedDataParallel<RandomNet>& ddp, int step, const Body& body) {
  static std::mutex mutex;
  auto range = ddp.VirtualRanks(step);
  std::optional<VirtualRankRange::Iterator> at;
  const auto advance = [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    if (at) {
      ++*at;
    } else {
      at = range.begin();
    }
    ddp.module()->generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  };
  for (advance(); *at != range.end(); advance()) body(**at);
}

void TrainStep(const Combination& c, int step, DistributedDataParallel<RandomNet>& ddp, Generators& generators) {
  const int parts = c.unsynced + 1;
  ForEachVirtualRank(ddp, step, [&](int virtual_rank) {
    generators[{step, virtual_rank}] = ddp.module()->generator->clone();
    for (int part = 0; part < parts; ++part) {
      std::optional<NoSync> no_sync;
      if (part + 1 < parts) no_sync.emplace(ddp);
      const int64_t pass = int64_t{step} * parts + part;
      ddp(InputsOf(c, pass, virtual_rank), pass, virtual_rank).backward();
      ddp.module()->MoveShift(virtual_rank);
    }
  });
}

State TrainRank(const Combination& c, comm::ProcessGroup& group, Generators& generators) {
  const bool same_start = group.rank() == 0 || !c.options.init_sync;
  const RandomNet net(c, same_start ? c.seed : testing::Mix({c.seed, group.rank()}));
  auto ddp = testing::Wrapped(net, group, c.options);
  if (c.hook) ThrowIfError(ddp.RegisterHook(hooks::AllReduce(&group)));
  torch::optim::SGD optimizer = Optimizer(c, ddp.parameters());
  for (int step = 0; step < c.steps; ++step) {
    if (step % c.steps_between_zero_grad == 0) optimizer.zero_grad(c.set_to_none);
    TrainStep(c, step, ddp, generators);
    optimizer.step();
  }
  return StateOf(net, optimizer);
}

// Rank 0's state, after checking that the ranks agree. Adds to `generators`.
State TrainRanks(const Combination& c, const VirtualRun& run, Generators& generators) {
  std::vector<State> states(run.ranks);
  std::vector<Generators> of_rank(run.ranks);
  const auto body = [&](comm::ProcessGroup& group) {
    return TorchStatus("", [&] { states[group.rank()] = TrainRank(c, group, of_rank[group.rank()]); });
  };
  comm::InitOptions options;
  options.backend = run.backend;
  const auto results = run.backend == "threads" ? comm::testing::RunRanks(run.ranks, body)
                                                : comm::testing::InitRanks(options, run.ranks, body);
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
  for (const State& state : states) ExpectSameBits(state.trained, states[0].trained, "the ranks differ");
  for (Generators& one : of_rank) generators.merge(one);
  return states[0];
}

void Assign(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(values[i]);
}

// One process without DistributedDataParallel that trains for all virtual ranks.
class Alone {
 public:
  explicit Alone(const Combination& c)
      : c_(c),
        net_(c, c.seed),
        parameters_(Once(*net_)),
        used_(parameters_.size()),
        optimizer_(Optimizer(c, parameters_)) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].requires_grad())
        parameters_[i].register_hook([this, i](const at::Tensor&) { used_[i] = true; });
    }
  }

  State Train(const Generators& generators) {
    for (int step = 0; step < c_.steps; ++step) {
      if (step % c_.steps_between_zero_grad == 0) optimizer_.zero_grad(c_.set_to_none);
      TrainStep(step, generators);
      optimizer_.step();
    }
    return StateOf(net_, optimizer_);
  }

 private:
  void TrainStep(int step, const Generators& generators) {
    const std::vector<at::Tensor> first_buffers = Copies(net_->buffers()),
                                  first_gradients = testing::Gradients(parameters_);
    std::vector<at::Tensor> kept_buffers;
    std::vector<std::vector<at::Tensor>> leaves(parameters_.size());
    std::fill(used_.begin(), used_.end(), false);
    for (int virtual_rank = 0; virtual_rank < c_.ranks; ++virtual_rank) {
      Assign(net_->buffers(), first_buffers);
      const std::vector<at::Tensor> gradients = Copies(first_gradients);
      for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = gradients[i];
      net_->generator = generators.at({step, virtual_rank}).clone();
      for (int part = 0; part <= c_.unsynced; ++part) {
        const int64_t pass = int64_t{step} * (c_.unsynced + 1) + part;
        net_(InputsOf(c_, pass, virtual_rank), pass, virtual_rank).backward();
        net_->MoveShift(virtual_rank);
      }
      for (size_t i = 0; i < parameters_.size(); ++i) {
        const at::Tensor& gradient = parameters_[i].grad();
        leaves[i].push_back(gradient.defined() ? gradient.clone() : at::zeros_like(parameters_[i]));
        if (c_.hook) leaves[i].back().div_(c_.ranks);  // a hook divides first
      }
      if (virtual_rank == 0) kept_buffers = Copies(net_->buffers());
    }
    Assign(net_->buffers(), kept_buffers);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      // A parameter that no virtual rank used keeps its gradient.
      gradient = used_[i] ? SumInTree(leaves[i]) / (c_.hook ? 1 : c_.ranks) : first_gradients[i];
    }
  }

  const Combination& c_;
  RandomNet net_;
  std::vector<at::Tensor> parameters_;
  std::vector<char> used_;
  torch::optim::SGD optimizer_;
};

class VirtualRandomCombinations : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, VirtualRandomCombinations, ::testing::Range(FirstSeed(), FirstSeed() + kSeeds),
                         [](const auto& param) { return std::to_string(param.param); });

TEST_P(VirtualRandomCombinations, TrainToTheSameBitsOnAnyNumberOfRanks) {
  // For good, so the second half of the seeds has it.
  if (GetParam() % kSeeds >= kSeeds / 2) InstallGradientAllocator();
  const Combination c = RandomVirtualCombination(GetParam());
  Generators generators;
  std::optional<State> expected;
  for (const VirtualRun& run : c.runs) {
    const std::string name = absl::StrCat(run.ranks, " ranks over ", run.backend);
    const State found = TrainRanks(c, run, generators);
    if (HasFailure()) break;
    if (!expected) expected = c.options.mixed_precision ? found : Alone(c).Train(generators);
    ExpectSameBits(found.trained, expected->trained, name);
    ExpectSameBits(found.buffers, expected->buffers, absl::StrCat(name, ", buffers"));
  }
  std::set<uint64_t> seeds;
  for (const auto& [place, generator] : generators) seeds.insert(generator.current_seed());
  EXPECT_EQ(seeds.size(), static_cast<size_t>(c.steps) * c.ranks) << "seeds of random numbers";
  // A SCOPED_TRACE would not reach the ranks' threads.
  if (HasFailure()) ADD_FAILURE() << Describe(c);
}

TEST(VirtualRandomCombination, AHundredOfThemUseEveryOptionSeveralTimes) {
  std::map<std::string, int> uses;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Combination c = RandomVirtualCombination(seed);
    const auto any = [&c](const auto& has) { return std::any_of(c.layers.begin(), c.layers.end(), has); };
    const int64_t last = c.layers.back().out;
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
    uses["mixed_precision"] += c.options.mixed_precision.has_value();
    uses["float"] += c.dtype == at::kFloat;
    uses["NoSync"] += c.unsynced > 0;
    uses["gradients of zero"] += !c.set_to_none;
    uses["gradients that stay"] += c.steps_between_zero_grad > 1;
    uses["buffer"] += c.buffer;
    uses["BatchNorm"] += c.norm;
    uses["dropout"] += c.dropout > 0;
    uses["branches by chance"] += c.branches == BranchUse::kByChance && c.ranks > 1;
    uses["branches never taken"] += c.branches == BranchUse::kSomeNever && c.ranks > 1;
    uses["tied"] += any([](const auto& layer) { return layer.tied_to >= 0; });
    uses["frozen"] += any([](const auto& layer) { return layer.frozen_weight; });
    uses["large gradients in their buckets"] += seed >= kSeeds / 2 && last * c.layers.back().in > 10000;
    uses["more than 8 virtual ranks"] += c.ranks > 8;
    uses["several virtual ranks on one of several ranks"] += c.runs[2].ranks > 1 && c.runs[2].ranks < c.ranks;
    for (const VirtualRun& run : c.runs) uses[run.backend] += run.ranks > 1;
  }
  for (const auto& [what, times] : uses) EXPECT_GE(times, 4) << what;
}

}  // namespace
}  // namespace lockstep::ddp
