// Training gives the same bits on any number of ranks.

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using ::testing::HasSubstr;

// Convolution, BatchNorm, and branches of which a virtual rank may use some.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : convolution(register_module("convolution", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(4))),
        head(register_module("head", torch::nn::Linear(4 * 4 * 4, 3))),
        even(register_module("even", torch::nn::Linear(3, 3))),
        odd(register_module("odd", torch::nn::Linear(3, 3))) {
    int seed = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel()).add(++seed).mul(12.9898).sin().mul(0.3).view_as(parameter));
    }
  }
  at::Tensor forward(const at::Tensor& images, int branch) {
    at::Tensor x = head(norm(convolution(images)).relu().flatten(1));
    if (branch != 1) x = even(x);
    if (branch != 0) x = odd(x);
    return x;
  }
  torch::nn::Conv2d convolution;
  torch::nn::BatchNorm2d norm;
  torch::nn::Linear head, even, odd;
};
TORCH_MODULE(Net);

constexpr int kSteps = 4;

struct Case {
  Options options;
  bool branches = false;    // virtual ranks use different parameters
  int parts = 1;            // backward passes of a virtual rank
  bool set_to_none = true;  // zero_grad
  std::string backend = "threads";
};

at::Tensor Images(int step, int virtual_rank, int part) {
  return at::arange(3 * 2 * 6 * 6)
      .add(1.7 * step + 3.1 * virtual_rank + 0.3 * part)
      .mul(78.233)
      .sin()
      .view({3, 2, 6, 6});
}

// Of parameters, gradients, buffers and momenta.
using State = std::vector<at::Tensor>;

State StateOf(const Net& net, torch::optim::SGD& optimizer) {
  State state;
  for (const at::Tensor& parameter : net->parameters()) {
    state.push_back(parameter.detach().clone());
    state.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::zeros({0}));
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const auto& momentum = static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer();
    if (momentum.defined()) state.push_back(momentum.clone());
  }
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer.clone());
  return state;
}

void ExpectSame(const State& a, const State& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].sizes() == b[i].sizes() &&
                at::equal(a[i].contiguous().flatten().view(at::kByte), b[i].contiguous().flatten().view(at::kByte)))
        << what << ": tensor " << i;
  }
}

at::Tensor Loss(const at::Tensor& output) { return output.to(at::kFloat).pow(2).mul(at::arange(3).add(1)).sum(); }

torch::optim::SGD Optimizer(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.01).momentum(0.9));
}

void TrainStep(DistributedDataParallel<Net>& ddp, torch::optim::SGD& optimizer, int step, const Case& c) {
  optimizer.zero_grad(c.set_to_none);
  for (const int virtual_rank : ddp.VirtualRanks(step)) {
    const int branch = c.branches ? (virtual_rank + step) % 2 : 2;
    for (int part = 0; part < c.parts; ++part) {
      std::unique_ptr<NoSync> no_sync;
      if (part + 1 < c.parts) no_sync = std::make_unique<NoSync>(ddp);
      Loss(ddp(Images(step, virtual_rank, part), branch)).backward();
    }
  }
  optimizer.step();
}

// Rank 0's state after the training, which is also the others', except for buffers between steps.
State Train(int ranks, const Case& c) {
  std::vector<State> states(ranks);
  const auto body = [&](comm::ProcessGroup& group) {
    return TorchStatus("", [&] {
      Net net;
      auto ddp = testing::Wrapped(net, group, c.options);
      torch::optim::SGD optimizer = Optimizer(ddp.parameters());
      for (int step = 0; step < kSteps; ++step) TrainStep(ddp, optimizer, step, c);
      states[group.rank()] = StateOf(net, optimizer);
    });
  };
  comm::InitOptions options;
  options.backend = c.backend;
  const auto results =
      c.backend == "threads" ? comm::testing::RunRanks(ranks, body) : comm::testing::InitRanks(options, ranks, body);
  for (const absl::Status& status : results) EXPECT_EQ(status, absl::OkStatus());
  const size_t buffers = Net()->buffers().size();
  for (const State& state : states) {
    ExpectSame(State(state.begin(), state.end() - static_cast<int>(buffers)),
               State(states[0].begin(), states[0].end() - static_cast<int>(buffers)), "the ranks differ");
  }
  return states[0];
}

void ExpectSameOnAnyNumberOfRanks(int virtual_ranks, Case c, const std::string& what) {
  c.options.virtual_ranks = virtual_ranks;
  const State expected = Train(virtual_ranks, c);
  for (int ranks = 1; ranks < virtual_ranks; ++ranks) {
    ExpectSame(Train(ranks, c), expected, absl::StrCat(what, ", ", virtual_ranks, " virtual ranks on ", ranks));
  }
}

// The definition: V networks, one a virtual rank, whose gradients are added by a tree.
State Reference(int virtual_ranks) {
  std::vector<Net> nets;
  for (int v = 0; v < virtual_ranks; ++v) nets.emplace_back();
  torch::optim::SGD optimizer = Optimizer(nets[0]->parameters());
  for (int step = 0; step < kSteps; ++step) {
    for (int v = 0; v < virtual_ranks; ++v) {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; v > 0 && i < nets[v]->parameters().size(); ++i) {
        nets[v]->parameters()[i].copy_(nets[0]->parameters()[i]);
      }
      nets[v]->zero_grad();
    }
    const std::vector<at::Tensor> buffers = nets[0]->buffers();
    std::vector<at::Tensor> before;
    for (const at::Tensor& buffer : buffers) before.push_back(buffer.clone());
    for (int v = 0; v < virtual_ranks; ++v) {
      for (size_t i = 0; i < before.size(); ++i) nets[v]->buffers()[i].copy_(before[i]);
      Loss(nets[v](Images(step, v, 0), 2)).backward();
    }
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < nets[0]->parameters().size(); ++i) {
      const std::function<at::Tensor(int, int)> sum = [&](int begin, int end) {
        if (end - begin == 1) return nets[begin]->parameters()[i].grad().clone();
        int p = 1;
        while (2 * p < end - begin) p *= 2;
        return sum(begin, begin + p) + sum(begin + p, end);
      };
      nets[0]->parameters()[i].mutable_grad() = sum(0, virtual_ranks) / virtual_ranks;
    }
    optimizer.step();
  }
  return StateOf(nets[0], optimizer);
}

TEST(VirtualRanks, GiveTheGradientsOfTheTree) {
  for (const int virtual_ranks : {1, 2, 3, 5, 8}) {
    Case c;
    c.options.virtual_ranks = virtual_ranks;
    ExpectSame(Train(1, c), Reference(virtual_ranks), absl::StrCat(virtual_ranks, " virtual ranks"));
  }
}

TEST(VirtualRanks, GiveTheSameBitsOnAnyNumberOfRanks) {
  for (const int virtual_ranks : {2, 3, 4, 7}) ExpectSameOnAnyNumberOfRanks(virtual_ranks, Case(), "default");
}

TEST(VirtualRanks, GiveTheSameBitsOverSharedMemoryAndGloo) {
  Case c;
  c.options.virtual_ranks = 5;
  const State expected = Train(2, c);
  for (const char* backend : {"shm", "gloo"}) {
    c.backend = backend;
    for (const int ranks : {2, 3, 5}) ExpectSame(Train(ranks, c), expected, absl::StrCat(backend, " on ", ranks));
  }
}

TEST(VirtualRanks, GiveTheSameBitsWithDdpsOptions) {
  std::map<std::string, Case> cases;
  cases["small buckets"].options.bucket_cap_mb = 0.0001;
  cases["bucket views"].options.gradient_as_bucket_view = true;
  cases["unused parameters"].options.find_unused_parameters = true;
  cases["unused parameters"].branches = true;
  cases["unused parameters, skipped"] = cases["unused parameters"];
  cases["unused parameters, skipped"].options.skip_all_reduce_unused_params = true;
  cases["static graph"].options.static_graph = true;
  cases["two backward passes"].parts = 2;
  cases["gradients of zero"].set_to_none = false;
  cases["gradients of zero in views"] = cases["gradients of zero"];
  cases["gradients of zero in views"].options.gradient_as_bucket_view = true;
  MixedPrecision mixed;
  mixed.param_dtype = at::kBFloat16;
  mixed.reduce_dtype = at::kFloat;
  mixed.buffer_dtype = at::kBFloat16;
  cases["mixed precision"].options.mixed_precision = mixed;
  for (const auto& [name, c] : cases) ExpectSameOnAnyNumberOfRanks(3, c, name);
}

TEST(VirtualRanks, OnTwoRanksEqualTwoRanksWithoutThem) {
  Case c;
  c.options.virtual_ranks = 2;
  const State virtual_two = Train(2, c);
  State plain;
  EXPECT_EQ(comm::testing::RunRanksOk(2,
                                      [&](comm::ProcessGroup& group) {
                                        Net net;
                                        auto ddp = testing::Wrapped(net, group);
                                        torch::optim::SGD optimizer = Optimizer(ddp.parameters());
                                        for (int step = 0; step < kSteps; ++step) {
                                          optimizer.zero_grad();
                                          Loss(ddp(Images(step, group.rank(), 0), 2)).backward();
                                          optimizer.step();
                                        }
                                        if (group.rank() == 0) plain = StateOf(net, optimizer);
                                      }),
            absl::OkStatus());
  ExpectSame(virtual_two, plain, "two ranks");
}

// One loop serves both.
TEST(VirtualRanks, OffAreTheRanks) {
  EXPECT_EQ(comm::testing::RunRanksOk(2,
                                      [&](comm::ProcessGroup& group) {
                                        std::vector<State> states;
                                        for (const bool in_loop : {false, true}) {
                                          Net net;
                                          auto ddp = testing::Wrapped(net, group);
                                          torch::optim::SGD optimizer = Optimizer(ddp.parameters());
                                          std::vector<int> ranks;
                                          for (int step = 0; step < kSteps; ++step) {
                                            if (in_loop) {
                                              TrainStep(ddp, optimizer, step, Case());
                                              for (const int rank : ddp.VirtualRanks(step)) ranks.push_back(rank);
                                              continue;
                                            }
                                            optimizer.zero_grad();
                                            Loss(ddp(Images(step, group.rank(), 0), 2)).backward();
                                            optimizer.step();
                                          }
                                          if (in_loop) EXPECT_EQ(ranks, std::vector<int>(kSteps, group.rank()));
                                          states.push_back(StateOf(net, optimizer));
                                        }
                                        ExpectSame(states[0], states[1], "with and without the loop");
                                      }),
            absl::OkStatus());
}

TEST(VirtualRanks, WhatCannotKeepThePromiseIsRefused) {
  EXPECT_EQ(comm::testing::RunRanksOk(
                2,
                [&](comm::ProcessGroup& group) {
                  const auto refusal = [&](const Options& options) {
                    const absl::Status status = Wrap(Net(), &group, options).status();
                    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
                    return std::string(status.message());
                  };
                  Options options;
                  options.virtual_ranks = 1;
                  EXPECT_THAT(refusal(options),
                              HasSubstr("virtual_ranks is 1, expected at least the number of ranks, 2"));
                  options.virtual_ranks = 4;
                  options.broadcast_buffers = false;
                  EXPECT_THAT(refusal(options), HasSubstr("virtual_ranks needs broadcast_buffers"));
                  options = Options();
                  options.virtual_ranks = 4;
                  options.non_finite = NonFinite::kThrow;
                  EXPECT_THAT(refusal(options), HasSubstr("virtual_ranks does not support non_finite"));

                  options = Options();
                  options.virtual_ranks = 4;
                  auto ddp = testing::Wrapped(Net(), group, options);
                  EXPECT_THAT(std::string(ddp.RegisterHook([](GradBucket&) { return Future(at::Tensor()); }).message()),
                              HasSubstr("so no hook can take its place"));
                  const auto thrown = [&](const std::function<void()>& call) {
                    return std::string(TorchStatus("", call).message());
                  };
                  EXPECT_THAT(thrown([&] { ddp(Images(0, 0, 0), 2); }),
                              HasSubstr("call forward in the loop over VirtualRanks()"));
                  Join join({ddp});
                  EXPECT_THAT(thrown([&] {
                                for (const int v : ddp.VirtualRanks(0)) ddp(Images(0, v, 0), 2);
                              }),
                              HasSubstr("virtual_ranks does not support Join"));
                }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp
