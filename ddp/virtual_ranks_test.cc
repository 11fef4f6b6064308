// Training gives the same bits on any number of ranks.

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/hooks/post_local_sgd.h"
#include "lockstep/ddp/hooks/power_sgd.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/testing/training.h"
#include "lockstep/ddp/testing/virtual_training.h"

namespace lockstep::ddp {
namespace {

using testing::ExpectSameBits;
using testing::ExpectSameOnAnyNumberOfRanks;
using ::testing::HasSubstr;
using testing::InputOf;
using testing::LossOf;
using testing::MomentumSgd;
using ::testing::Not;
using testing::State;
using testing::StateOf;
using testing::SumInTree;
using testing::Train;
using testing::TrainStep;
using testing::VirtualCase;
using testing::VirtualNet;
using testing::Wrapped;

// The definition: V networks, one a virtual rank, whose gradients are added by a tree.
State Reference(int virtual_ranks) {
  std::vector<VirtualNet> nets;
  for (int v = 0; v < virtual_ranks; ++v) nets.emplace_back();
  torch::optim::SGD optimizer = MomentumSgd(nets[0]->parameters());
  for (int step = 0; step < VirtualCase::kSteps; ++step) {
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
      LossOf(nets[v], InputOf(VirtualCase(), step, v)).backward();
    }
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < nets[0]->parameters().size(); ++i) {
      std::vector<at::Tensor> gradients;
      for (const VirtualNet& net : nets) gradients.push_back(net->parameters()[i].grad().clone());
      nets[0]->parameters()[i].mutable_grad() = SumInTree(gradients) / virtual_ranks;
    }
    optimizer.step();
  }
  return StateOf(nets[0], optimizer);
}

TEST(VirtualRanks, GiveTheGradientsOfTheTree) {
  for (const int virtual_ranks : {1, 2, 3, 5, 8}) {
    VirtualCase c;
    c.options.virtual_ranks = virtual_ranks;
    ExpectSameBits(Train(1, c), Reference(virtual_ranks), absl::StrCat(virtual_ranks, " virtual ranks"));
  }
}

TEST(VirtualRanks, GiveTheSameBitsOnAnyNumberOfRanks) {
  for (const int virtual_ranks : {2, 3, 4, 7}) ExpectSameOnAnyNumberOfRanks(virtual_ranks, VirtualCase(), "default");
}

TEST(VirtualRanks, GiveTheSameBitsOverSharedMemoryAndGloo) {
  VirtualCase c;
  c.options.virtual_ranks = 5;
  const State expected = Train(2, c);
  for (const char* backend : {"shm", "gloo"}) {
    c.backend = backend;
    for (const int ranks : {2, 3, 5}) ExpectSameBits(Train(ranks, c), expected, absl::StrCat(backend, " on ", ranks));
  }
}

// Each of DDP's options and parts that virtual ranks support.
std::map<std::string, VirtualCase> Cases() {
  std::map<std::string, VirtualCase> cases;
  cases["default"] = VirtualCase();
  cases["small buckets"].options.bucket_cap_mb = 0.0001;
  cases["a list of bucket sizes"].options.bucket_cap_mb_list = {0.0001, 0.001};
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
  cases["non_finite"].options.non_finite = NonFinite::kThrow;
  cases["delayed parameters"].options.delay_all_reduce_named_params = {"head.weight", "odd.bias"};
  cases["delayed parameters"].options.param_to_hook_all_reduce = "convolution.weight";

  MixedPrecision mixed;
  mixed.param_dtype = at::kBFloat16;
  mixed.reduce_dtype = at::kFloat;
  mixed.buffer_dtype = at::kBFloat16;
  cases["mixed precision"].options.mixed_precision = mixed;
  mixed = MixedPrecision();
  mixed.reduce_dtype = at::kBFloat16;
  cases["gradients reduced in 16 bits"].options.mixed_precision = mixed;

  cases["sparse"].sparse = true;
  cases["sparse, unused parameters"] = cases["unused parameters"];
  cases["sparse, unused parameters"].sparse = true;
  cases["sparse, gradients of zero"] = cases["gradients of zero"];
  cases["sparse, gradients of zero"].sparse = true;

  cases["AllReduce"].hook = hooks::AllReduce;
  cases["Fp16Compress"].hook = hooks::Fp16Compress;
  cases["Bf16Compress"].hook = hooks::Bf16Compress;
  cases["Bf16CompressWrapper"].hook = [](comm::ProcessGroup* group) {
    return hooks::Bf16CompressWrapper(hooks::AllReduce(group));
  };
  cases["Bf16Compress, sparse, small buckets"].hook = hooks::Bf16Compress;
  cases["Bf16Compress, sparse, small buckets"].sparse = true;
  cases["Bf16Compress, sparse, small buckets"].options.bucket_cap_mb = 0.0001;
  return cases;
}

TEST(VirtualRanks, GiveTheSameBitsWithDdpsOptions) {
  for (const auto& [name, c] : Cases()) ExpectSameOnAnyNumberOfRanks(3, c, name);
}

// Some numbers of ranks leave a rank without inputs, others with some; the last one that has inputs has it on each
// rank.
TEST(VirtualRanks, GiveTheSameBitsUnderJoin) {
  for (const std::vector<int>& counts :
       {std::vector<int>{3, 1, 2, 2}, {0, 3, 1, 4}, {4, 4, 1, 0}, {0, 0, 2, 0}, {2, 2, 2, 2}, {1, 2, 3, 1, 0}}) {
    std::map<std::string, VirtualCase> cases;
    cases["Join"] = VirtualCase();
    cases["Join, divided by those with inputs"].divide_by_initial_world_size = false;
    cases["Join, unused parameters"].options.find_unused_parameters = true;
    cases["Join, unused parameters"].branches = true;
    cases["Join, sparse"].sparse = true;
    cases["Join, sparse"].divide_by_initial_world_size = false;
    cases["Join, Bf16Compress"].hook = hooks::Bf16Compress;
    cases["Join over shared memory"].backend = "shm";
    cases["Join over shared memory"].divide_by_initial_world_size = false;
    for (auto& [name, c] : cases) {
      c.counts = counts;
      ExpectSameOnAnyNumberOfRanks(static_cast<int>(counts.size()), c,
                                   absl::StrCat(name, " of ", absl::StrJoin(counts, ", ")));
    }
  }
}

// The sum of two numbers has one order. One loop serves both.
TEST(VirtualRanks, OnTwoRanksEqualTwoRanksWithoutThem) {
  std::map<std::string, VirtualCase> cases = Cases();
  for (const bool by_all : {false, true}) {
    VirtualCase& c = cases[absl::StrCat("Join ", by_all)];
    c.counts = {1, 4};
    c.divide_by_initial_world_size = by_all;
  }
  cases["Join in which rank 1 is done first"].counts = {3, 0};
  for (auto& [name, c] : cases) {
    const State plain = Train(2, c);
    c.options.virtual_ranks = 2;
    ExpectSameBits(Train(2, c), plain, name);
  }
}

TEST(VirtualRanks, OffAreThisRank) {
  EXPECT_EQ(comm::testing::RunRanksOk(3,
                                      [](comm::ProcessGroup& group) {
                                        auto ddp = Wrapped(VirtualNet(), group);
                                        std::vector<int> ranks;
                                        for (const int rank : ddp.VirtualRanks(/*step=*/0)) ranks.push_back(rank);
                                        EXPECT_EQ(ranks, std::vector<int>{group.rank()});
                                      }),
            absl::OkStatus());
}

// The error names every virtual rank, by its number, whichever rank it is on.
TEST(VirtualRanks, NonFiniteGradientsAreNamedByVirtualRank) {
  constexpr int kVirtualRanks = 4;
  for (int ranks = 1; ranks <= kVirtualRanks; ++ranks) {
    for (int bad = 0; bad < kVirtualRanks; ++bad) {
      EXPECT_EQ(comm::testing::RunRanksOk(ranks,
                                          [&](comm::ProcessGroup& group) {
                                            Options options;
                                            options.virtual_ranks = kVirtualRanks;
                                            options.non_finite = NonFinite::kThrow;
                                            VirtualNet net;
                                            auto ddp = Wrapped(net, group, options);
                                            torch::optim::SGD optimizer = MomentumSgd(ddp.parameters());
                                            const absl::Status thrown = TorchStatus("", [&] {
                                              for (const int v : ddp.VirtualRanks(0)) {
                                                at::Tensor loss = LossOf(ddp, InputOf(VirtualCase(), 0, v));
                                                if (v == bad)
                                                  loss = loss * at::full({}, std::numeric_limits<float>::infinity());
                                                loss.backward();
                                              }
                                            });
                                            EXPECT_EQ(thrown.code(), absl::StatusCode::kDataLoss);
                                            EXPECT_THAT(std::string(thrown.message()),
                                                        HasSubstr(absl::StrCat("is not finite on virtual rank ", bad)));
                                            EXPECT_THAT(std::string(thrown.message()), Not(HasSubstr("on rank")));
                                            TrainStep(ddp, optimizer, 1, VirtualCase());  // the next step is right
                                          }),
                absl::OkStatus());
    }
  }
}

std::string Thrown(const std::function<void()>& call) { return std::string(TorchStatus("", call).message()); }

TEST(VirtualRanks, WhatCannotKeepThePromiseIsRefused) {
  EXPECT_EQ(
      comm::testing::RunRanksOk(
          2,
          [](comm::ProcessGroup& group) {
            const auto refusal = [&](const Options& options) {
              const absl::Status status = Wrap(VirtualNet(), &group, options).status();
              EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
              return std::string(status.message());
            };
            Options options;
            options.virtual_ranks = 1;
            EXPECT_THAT(refusal(options), HasSubstr("virtual_ranks is 1, expected at least the number of ranks, 2"));
            options.virtual_ranks = -1;
            EXPECT_THAT(refusal(options), HasSubstr("virtual_ranks is -1, expected 0 or more"));
            options.virtual_ranks = 4 + group.rank();
            options.virtual_seed = 7;
            EXPECT_THAT(refusal(options), HasSubstr("the ranks' options differ: rank 0 has virtual_ranks 4 and "
                                                    "virtual_seed 7, rank 1 has virtual_ranks 5 and "));
            options.virtual_ranks = 4;
            options.virtual_seed = group.rank();
            EXPECT_THAT(refusal(options), HasSubstr("virtual_seed 0, rank 1 has virtual_ranks 4 and virtual_seed 1"));
            options.virtual_seed = 0;
            options.broadcast_buffers = false;
            EXPECT_THAT(refusal(options), HasSubstr("virtual_ranks needs broadcast_buffers"));
            options.broadcast_buffers = true;
            options.parameters_to_ignore = {"odd.weight"};
            EXPECT_THAT(refusal(options), HasSubstr("parameters_to_ignore names odd.weight, whose gradient"));
          }),
      absl::OkStatus());
}

TEST(VirtualRanks, HooksThatCannotKeepThePromiseAreRefused) {
  EXPECT_EQ(comm::testing::RunRanksOk(
                2,
                [](comm::ProcessGroup& group) {
                  Options options;
                  options.virtual_ranks = 4;
                  auto ddp = Wrapped(VirtualNet(), group, options);
                  const auto refusal = [&](CommunicationHook hook) {
                    return std::string(ddp.RegisterHook(std::move(hook)).message());
                  };
                  EXPECT_THAT(refusal([](GradBucket& bucket) { return Future(bucket.buffer); }),
                              HasSubstr("with a hook of the program, the result would depend on the number of ranks"));
                  EXPECT_THAT(refusal(*hooks::PowerSgd(&group, {})), HasSubstr("with PowerSgd, the result would"));
                  EXPECT_THAT(refusal(*hooks::PostLocalSgd(&group, &group, {})), HasSubstr("with PostLocalSgd, "));
                  EXPECT_THAT(refusal(hooks::Noop()), HasSubstr("with Noop, "));
                  EXPECT_THAT(refusal(hooks::Fp16CompressWrapper(*hooks::PowerSgd(&group, {}))),
                              HasSubstr("with Fp16CompressWrapper of PowerSgd, "));
                  EXPECT_THAT(refusal(hooks::Fp16CompressWrapper(hooks::Bf16Compress(&group))),
                              HasSubstr("with Fp16CompressWrapper of Bf16Compress, "));
                  EXPECT_THAT(Thrown([&] {
                                for (const int v : ddp.VirtualRanks(0)) {
                                  EXPECT_THAT(refusal(hooks::AllReduce(&group)), HasSubstr("a step is under way"));
                                  LossOf(ddp, InputOf(VirtualCase(), 0, v)).backward();
                                }
                              }),
                              "");
                  EXPECT_EQ(ddp.RegisterHook(hooks::AllReduce(&group)), absl::OkStatus());
                  EXPECT_THAT(refusal(hooks::AllReduce(&group)), HasSubstr("there is a hook already"));
                }),
            absl::OkStatus());
}

TEST(VirtualRanks, ForwardAndInputsOutOfPlaceAreRefused) {
  EXPECT_EQ(comm::testing::RunRanksOk(
                2,
                [](comm::ProcessGroup& group) {
                  Options options;
                  options.virtual_ranks = 4;
                  auto ddp = Wrapped(VirtualNet(), group, options);
                  EXPECT_THAT(Thrown([&] { LossOf(ddp, InputOf(VirtualCase(), 0, 0)); }),
                              HasSubstr("call forward in the loop over VirtualRanks()"));
                  const int own = 2 * group.rank(), other = 2 - own;
                  EXPECT_THAT(Thrown([&] { ddp.VirtualRanks(0, {own}).begin(); }),
                              HasSubstr("1 of 2 virtual ranks have inputs: only under a Join"));
                  for (const std::vector<int>& wrong :
                       {std::vector<int>{other}, {own + 1, own}, {own, own}, {own, own + 2}}) {
                    EXPECT_THAT(Thrown([&] { ddp.VirtualRanks(0, wrong).begin(); }),
                                HasSubstr(absl::StrCat("expected some of the virtual ranks ", own, " to ", own + 1,
                                                       " in ascending order, found ", absl::StrJoin(wrong, ", "))));
                  }
                }),
            absl::OkStatus());
}

// One of a rank's virtual ranks runs out, or all do.
TEST(VirtualRanks, UnderJoinAllStopOnceOneHasNoInputsIfAsked) {
  for (const std::vector<int>& left : {std::vector<int>{0, 1, 3}, {0, 1}, {2}}) {
    EXPECT_EQ(comm::testing::RunRanksOk(
                  2,
                  [&](comm::ProcessGroup& group) {
                    Options options;
                    options.virtual_ranks = 4;
                    auto ddp = Wrapped(VirtualNet(), group, options);
                    JoinOptions join_options;
                    join_options.throw_on_early_termination = true;
                    Join join({ddp}, join_options);
                    std::vector<int> mine;
                    for (const int v : left) {
                      if (v / 2 == group.rank()) mine.push_back(v);
                    }
                    const std::string thrown = Thrown([&] {
                      for (const int v : ddp.VirtualRanks(0, mine))
                        LossOf(ddp, InputOf(VirtualCase(), 0, v)).backward();
                    });
                    const absl::Status finished = join.Finish();
                    EXPECT_EQ(finished.code(), absl::StatusCode::kOutOfRange);
                    if (mine.empty()) return;
                    const int missing = left.size() == 3 ? 2 : 3;
                    EXPECT_THAT(thrown, HasSubstr(absl::StrCat("rank ", group.rank(), " stops: virtual rank ", missing,
                                                               " has no inputs left")));
                    EXPECT_EQ(finished.message(), thrown);
                  }),
              absl::OkStatus());
  }
}

}  // namespace
}  // namespace lockstep::ddp
