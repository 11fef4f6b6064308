#include "lockstep/ddp/distributed_data_parallel.h"

#include <torch/torch.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using testing::Batch;
using testing::Branches;
using testing::ExpectClose;
using testing::Gradients;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::Used;
using testing::Wrapped;

TEST(Wrap, GivesEveryRankTheParametersAndBuffersOfRank0) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         Mlp net = SeededMlp(group.rank());
                         net->register_buffer("mean", torch::full({2}, group.rank()));
                         auto ddp = Wrap(net, &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         const Mlp expected = SeededMlp(0);
                         for (size_t i = 0; i < 4; ++i)
                           EXPECT_TRUE(net->parameters()[i].equal(expected->parameters()[i]));
                         EXPECT_TRUE(net->buffers()[0].equal(torch::zeros({2}, torch::kLong)));
                       }),
            absl::OkStatus());
}

// Trains on `ranks` ranks and in one process; the parameters must agree.
void ExpectSameAsOneProcess(int ranks, const Options& options, bool set_to_none, double tolerance) {
  Mlp reference = SeededMlp(7);
  torch::optim::SGD reference_optimizer(reference->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 6; ++step) {
    reference_optimizer.zero_grad();
    reference(Batch(12, 4, step)).pow(2).mean().backward();
    reference_optimizer.step();
  }
  EXPECT_EQ(RunRanksOk(ranks,
                       [&](ProcessGroup& group) {
                         auto ddp = Wrap(SeededMlp(group.rank() == 0 ? 7 : 8), &group, options);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         torch::optim::SGD optimizer(ddp->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
                         for (int step = 0; step < 6; ++step) {
                           optimizer.zero_grad(set_to_none);
                           (*ddp)(Share(Batch(12, 4, step), group)).pow(2).mean().backward();
                           optimizer.step();
                         }
                         for (size_t i = 0; i < 4; ++i) {
                           EXPECT_LE((ddp->parameters()[i] - reference->parameters()[i]).abs().max().item<double>(),
                                     tolerance);
                         }
                       }),
            absl::OkStatus());
}

TEST(DistributedDataParallel, TrainsAsOneProcessOnTheWholeBatchWould) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool view : {false, true}) {
      for (const bool set_to_none : {false, true}) {
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, view ", view, ", set_to_none ", set_to_none));
        Options options;
        options.gradient_as_bucket_view = view;
        options.bucket_cap_mb = 1e-4;  // 104 bytes: several buckets
        ExpectSameAsOneProcess(ranks, options, set_to_none, 1e-13);
      }
    }
  }
}

TEST(DistributedDataParallel, GradientsAreTheSameBitsOnEveryRank) {
  std::vector<torch::Tensor> gradients(3);
  EXPECT_EQ(RunRanksOk(3,
                       [&](ProcessGroup& group) {
                         auto ddp = Wrap(SeededMlp(1), &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         (*ddp)(Share(Batch(9, 4, 0), group)).pow(2).mean().backward();
                         gradients[group.rank()] = ddp->parameters()[0].grad().clone();
                       }),
            absl::OkStatus());
  EXPECT_TRUE(gradients[0].equal(gradients[1]));
  EXPECT_TRUE(gradients[0].equal(gradients[2]));
}

// Half of the least number is 0 on both ranks; half of their sum would not be.
TEST(DistributedDataParallel, EachRanksGradientIsDividedAndRoundedBeforeTheSumOverShmToo) {
  const auto body = [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      Options options;
      options.gradient_as_bucket_view = view;
      auto ddp = Wrapped(torch::nn::Linear(torch::nn::LinearOptions(3, 1).bias(false)), group, options);
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad(/*set_to_none=*/step == 1);
        ddp(torch::full({1, 3}, std::numeric_limits<float>::denorm_min())).sum().backward();
        EXPECT_TRUE(ddp.parameters()[0].grad().equal(torch::zeros({1, 3}))) << "view " << view << ", step " << step;
      }
    }
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
  comm::InitOptions shm;
  shm.backend = "shm";
  const auto results = comm::testing::InitRanks(shm, 2, [&](ProcessGroup& group) {
    body(group);
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
}

TEST(DistributedDataParallel, WithBucketViewsGradientsLiveInTheBuckets) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         Options options;
                         options.gradient_as_bucket_view = true;
                         auto ddp = Wrap(SeededMlp(1), &group, options);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         (*ddp)(Batch(4, 4, 0)).sum().backward();
                         const auto parameters = ddp->parameters();
                         for (size_t i = 1; i < parameters.size(); ++i) {
                           const at::Tensor before = parameters[i - 1].grad();
                           EXPECT_EQ(before.data_ptr<double>() + before.numel(),
                                     parameters[i].grad().data_ptr<double>());
                         }
                       }),
            absl::OkStatus());
}

TEST(DistributedDataParallel, WithBucketViewsAGradientThatIsHeldElsewhereLivesInTheBucketToo) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      Options options;
      options.gradient_as_bucket_view = view;
      auto ddp = Wrapped(SeededMlp(1), group, options);
      const torch::Tensor held = torch::zeros({5, 4}, torch::kDouble);
      ddp.parameters()[0].mutable_grad() = held;
      ddp(Share(Batch(8, 4, 0), group)).pow(2).mean().backward();
      auto reference = SeededMlp(1);
      reference(Batch(8, 4, 0)).pow(2).mean().backward();
      ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
      EXPECT_EQ(ddp.parameters()[0].grad().is_same(held), !view);
    }
  });
}

TEST(DistributedDataParallel, SeveralBackwardPassesAccumulateAverages) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         for (const bool view : {false, true}) {
                           Options options;
                           options.gradient_as_bucket_view = view;
                           auto ddp = Wrap(SeededMlp(1), &group, options);
                           ASSERT_TRUE(ddp.ok()) << ddp.status();
                           Mlp reference = SeededMlp(1);
                           for (int step = 0; step < 3; ++step) {
                             (*ddp)(Share(Batch(8, 4, step), group)).pow(2).mean().backward();
                             reference(Batch(8, 4, step)).pow(2).mean().backward();
                           }
                           // One forward, two backward passes.
                           const auto loss = (*ddp)(Share(Batch(8, 4, 9), group)).pow(2).mean();
                           loss.backward({}, /*keep_graph=*/true);
                           loss.backward();
                           const auto reference_loss = reference(Batch(8, 4, 9)).pow(2).mean();
                           reference_loss.backward({}, /*keep_graph=*/true);
                           reference_loss.backward();
                           for (size_t i = 0; i < 4; ++i) {
                             EXPECT_TRUE(torch::allclose(ddp->parameters()[i].grad(), reference->parameters()[i].grad(),
                                                         1e-12, 1e-14));
                           }
                         }
                       }),
            absl::OkStatus());
}

struct FrozenAndSharedImpl : torch::nn::Module {
  FrozenAndSharedImpl() {
    weight = register_parameter("weight", torch::eye(3));
    frozen = register_parameter("frozen", torch::full({3}, 2.0), /*requires_grad=*/false);
    alias = register_parameter("alias", torch::ones({1}));
    // A tied weight: the same tensor under a second name.
    register_module("again", again);
    again->register_parameter("tied", weight);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return (torch::matmul(torch::matmul(x, weight), weight) * frozen * alias).sum();
  }
  struct EmptyImpl : torch::nn::Module {};
  std::shared_ptr<EmptyImpl> again = std::make_shared<EmptyImpl>();
  torch::Tensor weight, frozen, alias;
};

TEST(DistributedDataParallel, TiedFrozenAndTwiceUsedParametersAreAveragedOnce) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto net = std::make_shared<FrozenAndSharedImpl>();
                         auto ddp = Wrap(net, &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         EXPECT_EQ(ddp->parameters().size(), 3);  // the tied one once
                         auto whole = std::make_shared<FrozenAndSharedImpl>();
                         const auto batch = torch::arange(12, torch::kFloat).view({4, 3});
                         for (int step = 0; step < 2; ++step) {
                           (*ddp)(Share(batch, group)).backward();
                           (whole->forward(batch) / 2).backward();
                           EXPECT_TRUE(torch::allclose(net->weight.grad(), whole->weight.grad()));
                           EXPECT_TRUE(torch::allclose(net->alias.grad(), whole->alias.grad()));
                           EXPECT_FALSE(net->frozen.grad().defined());
                         }
                       }),
            absl::OkStatus());
}

TEST(DistributedDataParallel, BuffersAreRank0sBeforeEachForward) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         for (const bool broadcast : {true, false}) {
                           Options options;
                           options.broadcast_buffers = broadcast;
                           torch::nn::BatchNorm1d norm(3);
                           auto ddp = Wrap(norm, &group, options);
                           ASSERT_TRUE(ddp.ok()) << ddp.status();
                           const auto batch = torch::full({4, 3}, group.rank() + 1.0f) + torch::arange(4).view({4, 1});
                           (*ddp)(batch).sum().backward();
                           const float after_first =
                               group.rank() == 0 ? 0.25f : 0.35f;  // 0.1 * mean of the rank's own batch
                           EXPECT_NEAR(norm->running_mean[0].item<float>(), after_first, 1e-6);
                           ddp->eval();
                           const torch::NoGradGuard no_grad;
                           (*ddp)(batch);
                           EXPECT_NEAR(norm->running_mean[0].item<float>(), broadcast ? 0.25f : after_first, 1e-6);
                           EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
                         }
                       }),
            absl::OkStatus());
}

struct ManyArgumentsImpl : torch::nn::Module {
  ManyArgumentsImpl() { weight = register_parameter("weight", torch::ones({2})); }
  std::pair<torch::Tensor, int> forward(const torch::Tensor& x, int scale, std::unique_ptr<int> extra) {
    return {(x * weight * scale).sum(), *extra};
  }
  torch::Tensor weight;
};

TEST(DistributedDataParallel, ForwardKeepsTheModulesSignature) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = Wrap(std::make_shared<ManyArgumentsImpl>(), &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         auto moved = *std::move(ddp);
                         auto [loss, extra] = moved(torch::ones({2}), 2 * group.rank(), std::make_unique<int>(11));
                         EXPECT_EQ(extra, 11);
                         loss.backward();
                         EXPECT_TRUE(moved.module()->weight.grad().equal(torch::ones({2})));
                       }),
            absl::OkStatus());
}

TEST(DistributedDataParallel, AParameterWithoutAGradientIsNamedAtTheNextForward) {
  EXPECT_EQ(
      RunRanksOk(2,
                 [](ProcessGroup& group) {
                   auto ddp = Wrap(Branches(4), &group);
                   ASSERT_TRUE(ddp.ok()) << ddp.status();
                   (*ddp)(Batch(2, 4, 0), Used{0, 1}).sum().backward();
                   const absl::Status status = TorchStatus("", [&] { (*ddp)(Batch(2, 4, 0), Used{0, 1, 2, 3}); });
                   EXPECT_EQ(
                       status.message(),
                       absl::StrCat(
                           "rank ", group.rank(),
                           ": 2 of 4 parameters got no gradient in the last backward, so it was not averaged: "
                           "branch2, branch3; each parameter that requires gradients must take part in the loss, or "
                           "Options::find_unused_parameters be set"));
                   // Said once; training may go on.
                   ddp->zero_grad();
                   (*ddp)(Batch(2, 4, 0), Used{0, 1, 2, 3}).sum().backward();
                 }),
      absl::OkStatus());
}

TEST(DistributedDataParallel, AFirstBackwardThatReachesOnlySomeParametersDoesNotSpoilTheBuckets) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = Wrap(Branches(4), &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         const Used all = {0, 1, 2, 3};
                         // The parameters that are also the first to be ready in a whole backward.
                         (*ddp)(Batch(2, 4, 0), Used{2, 3}).sum().backward();
                         EXPECT_THAT(TorchStatus("", [&] { (*ddp)(Batch(2, 4, 0), all); }).message(),
                                     HasSubstr("2 of 4 parameters got no gradient in the last backward"));
                         Branches reference(4);
                         for (int step = 0; step < 3; ++step) {
                           ddp->zero_grad();
                           reference->zero_grad();
                           (*ddp)(Share(Batch(8, 4, step), group), all).pow(2).mean().backward();
                           reference(Batch(8, 4, step), all).pow(2).mean().backward();
                           for (size_t i = 0; i < 4; ++i) {
                             EXPECT_TRUE(torch::allclose(ddp->parameters()[i].grad(), reference->parameters()[i].grad(),
                                                         1e-12, 1e-14))
                                 << "step " << step << " parameter " << i;
                           }
                         }
                       }),
            absl::OkStatus());
}

TEST(DistributedDataParallel, AModuleConvertedAfterWrappingIsRefused) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = Wrap(SeededMlp(1), &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         ddp->module()->to(torch::kFloat);
                         EXPECT_THAT(TorchStatus("", [&] { (*ddp)(Batch(2, 4, 0).to(torch::kFloat)); }).message(),
                                     HasSubstr("parameter first.weight is no longer the one that was wrapped"));
                       }),
            absl::OkStatus());
}

TEST(DistributedDataParallel, ALostRankComesOutOfBackwardAsItsStatus) {
  const auto results = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    auto ddp = Wrap(SeededMlp(1), &group);
    if (!ddp.ok()) return ddp.status();
    if (group.rank() == 1) return absl::InternalError("unplugged");
    const auto loss = (*ddp)(Batch(2, 4, 0)).sum();
    return TorchStatus("step 1", [&] { loss.backward(); });
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(results[0].message(), HasSubstr("rank 1 left the group: unplugged"));
}

TEST(Wrap, DifferentModelsAreRefusedOnEveryRankNamingTheFirstDifference) {
  const auto results =
      RunRanks(3, [](ProcessGroup& group) { return Wrap(SeededMlp(1, group.rank() == 2 ? 6 : 5), &group).status(); });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank],
              absl::InvalidArgumentError(absl::StrCat(
                  "rank ", rank,
                  ": ddp::Wrap: the ranks' models differ at parameter 0: rank 0 has first.weight Double [5, 4] "
                  "strides [4, 1], rank 2 has first.weight Double [6, 4] strides [4, 1]")))
        << results[rank];
  }
}

TEST(Wrap, RefusesBadOptionsAndModulesWithNothingToTrain) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         Options options;
                         options.bucket_cap_mb = -1;
                         EXPECT_THAT(Wrap(SeededMlp(1), &group, options).status().message(),
                                     HasSubstr("bucket_cap_mb is -1, expected a positive number"));
                         EXPECT_THAT(Wrap(torch::nn::ReLU(), &group).status().message(),
                                     HasSubstr("no parameter of the module requires gradients"));
                       }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp
