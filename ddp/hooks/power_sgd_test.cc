#include "lockstep/ddp/hooks/power_sgd.h"

#include <torch/torch.h>

#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/hooks/test_bucket.h"

namespace lockstep::ddp::hooks {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

using Factory = absl::StatusOr<CommunicationHook> (*)(ProcessGroup*, const PowerSgdOptions&);

PowerSgdOptions FromTheStart(int64_t rank = 1) {
  PowerSgdOptions options;
  options.matrix_approximation_rank = rank;
  options.start_power_sgd_iter = 0;
  return options;
}

CommunicationHook Make(Factory factory, ProcessGroup& group, const PowerSgdOptions& options) {
  absl::StatusOr<CommunicationHook> hook = factory(&group, options);
  ThrowIfError(hook.status());
  return *hook;
}

double Distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).norm().item<double>(); }

void OnRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) {
  EXPECT_EQ(RunRanksOk(ranks, body), absl::OkStatus());
}

at::Tensor Average(int ranks, const std::function<at::Tensor(int rank)>& of) {
  at::Tensor sum = of(0).clone();
  for (int rank = 1; rank < ranks; ++rank) sum.add_(of(rank));
  return sum.div_(ranks);
}

// A gradient of its own on each rank, whose average over the ranks has the rank `rank_of_matrix`.
at::Tensor LowRank(int64_t n, int64_t m, int64_t rank_of_matrix, int rank) {
  return RandomGradient({n, rank_of_matrix}, 0, 50).mm(RandomGradient({rank_of_matrix, m}, rank, 60));
}

TEST(PowerSgd, ReproducesAGradientOfItsRank) {
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t r : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, approximation rank ", r));
      OnRanks(ranks, [&](ProcessGroup& group) {
        const CommunicationHook hook = Make(PowerSgd, group, FromTheStart(r));
        const auto bias = [](int rank) { return RandomGradient({7}, rank, 1); };
        const auto weight = [&](int rank) { return LowRank(20, 30, r, rank).view({20, 5, 6}); };
        GradBucket bucket = MakeBucket({bias(group.rank()), weight(group.rank())});
        EXPECT_TRUE(Reduce(hook, bucket).is_same(bucket.buffer));
        EXPECT_LT(Distance(bucket.gradients[0], Average(ranks, bias)), 1e-6);
        EXPECT_LT(Distance(bucket.gradients[1], Average(ranks, weight)), 1e-4);
      });
    }
  }
}

TEST(PowerSgd, ReproducesAGradientOfLessThanItsRank) {
  for (const int64_t r : {2, 4}) {
    OnRanks(2, [&](ProcessGroup& group) {
      const CommunicationHook hook = Make(PowerSgd, group, FromTheStart(r));
      for (int step = 0; step < 3; ++step) {
        const auto gradient = [&](int rank) { return LowRank(20, 30, 1, rank) * (step + 1); };
        GradBucket bucket = MakeBucket({gradient(group.rank())});
        Reduce(hook, bucket);
        EXPECT_LT(Distance(bucket.gradients[0], Average(2, gradient)), 1e-4) << "step " << step;
      }
    });
  }
}

TEST(PowerSgd, CompressesWhereThatSavesEnough) {
  PowerSgdOptions options = FromTheStart();
  options.use_error_feedback = false;
  OnRanks(2, [&](ProcessGroup& group) {
    // 20 x 20: (20 + 20) * 1 = 40 elements, ten times fewer.
    for (const auto& [rate, compresses] : {std::pair(9.9, true), std::pair(10.0, false)}) {
      PowerSgdOptions with_rate = options;
      with_rate.min_compression_rate = rate;
      const auto gradient = [](int rank) { return RandomGradient({20, 20}, rank, 0); };
      const at::Tensor reduced =
          Reduce(Make(PowerSgd, group, with_rate), MakeBucket({gradient(group.rank())})).view({20, 20});
      const double distance = Distance(reduced, Average(2, gradient));
      EXPECT_EQ(distance > 1, compresses) << distance;
    }
  });
}

TEST(PowerSgd, LeavesScalarsAndEmptyGradientsUncompressed) {
  PowerSgdOptions options = FromTheStart();
  options.min_compression_rate = 0.4;
  OnRanks(2, [&](ProcessGroup& group) {
    const at::Tensor reduced =
        Reduce(Make(PowerSgd, group, options),
               MakeBucket({at::full({}, 2.0f * group.rank()), at::zeros({0, 3}), at::ones({3})}));
    EXPECT_LT(Distance(reduced, at::ones({4})), 1e-6);
  });
}

// ||sum of what was applied - sum of the gradients|| / ||sum of the gradients|| after `steps` steps.
double RelativeError(Factory factory, ProcessGroup& group, const PowerSgdOptions& options, int steps) {
  const CommunicationHook hook = Make(factory, group, options);
  const auto gradients = [&](int rank, int step) {
    return at::cat({RandomGradient({15 * 10}, rank, 0), RandomGradient({7}, rank, 1)}) +
           0.1 * RandomGradient({157}, rank, 2 + step);
  };
  at::Tensor applied = at::zeros({157}), wanted = at::zeros({157});
  for (int step = 0; step < steps; ++step) {
    const at::Tensor own = gradients(group.rank(), step);
    applied += Reduce(hook, MakeBucket({own.narrow(0, 0, 150).view({15, 10}), own.narrow(0, 150, 7)}));
    wanted += Average(group.size(), [&](int rank) { return gradients(rank, step); });
  }
  return Distance(applied, wanted) / wanted.norm().item<double>();
}

TEST(PowerSgd, FeedsTheErrorBack) {
  for (const Factory factory : {&PowerSgd, &BatchedPowerSgd}) {
    for (const bool warm_start : {false, true}) {
      OnRanks(2, [&](ProcessGroup& group) {
        PowerSgdOptions options = FromTheStart();
        options.warm_start = warm_start;
        EXPECT_LT(RelativeError(factory, group, options, 300), 0.05) << "warm_start " << warm_start;
        options.use_error_feedback = false;
        options.warm_start = true;
        EXPECT_GT(RelativeError(factory, group, options, 300), 0.5);
      });
    }
  }
}

// The loss that a linear regression with `hook` has after 300 steps, on all ranks' samples.
double Train(ProcessGroup& group, const CommunicationHook& hook) {
  const int ranks = group.size();
  const at::Tensor truth = RandomGradient({16, 12}, 0, 90);
  const auto x = [](int rank) { return RandomGradient({40, 16}, rank, 91); };
  const auto y = [&](int rank) { return x(rank).mm(truth) + 0.5 * RandomGradient({40, 12}, rank, 92) + 1; };
  at::Tensor weight = at::zeros({16, 12}), bias = at::zeros({12});
  for (int step = 0; step < 300; ++step) {
    const at::Tensor residual = x(group.rank()).mm(weight) + bias - y(group.rank());
    GradBucket bucket = MakeBucket({x(group.rank()).t().mm(residual) / 40, residual.mean(0)}, {"weight", "bias"});
    const at::Tensor reduced = Reduce(hook, bucket);
    weight -= 0.1 * reduced.narrow(0, 0, 16 * 12).view({16, 12});
    bias -= 0.1 * reduced.narrow(0, 16 * 12, 12);
  }
  double loss = 0;
  for (int rank = 0; rank < ranks; ++rank) loss += (x(rank).mm(weight) + bias - y(rank)).pow(2).mean().item<double>();
  return loss / ranks;
}

TEST(PowerSgd, TrainsToTheLossOfUncompressedGradients) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [](ProcessGroup& group) {
      const double uncompressed = Train(group, AllReduce(&group));
      EXPECT_LT(uncompressed, 0.3);
      for (const Factory factory : {&PowerSgd, &BatchedPowerSgd}) {
        PowerSgdOptions options = FromTheStart();
        options.start_power_sgd_iter = 5;
        EXPECT_NEAR(Train(group, Make(factory, group, options)), uncompressed, 0.01 * uncompressed);
      }
    });
  }
}

TEST(PowerSgd, WarmsUpWithAllReducesToTheBit) {
  for (const Factory factory : {&PowerSgd, &BatchedPowerSgd}) {
    OnRanks(3, [&](ProcessGroup& group) {
      PowerSgdOptions options;
      options.start_power_sgd_iter = 3;
      const CommunicationHook hook = Make(factory, group, options), plain = AllReduce(&group);
      for (int step = 0; step < 4; ++step) {
        for (int index = 0; index < 2; ++index) {  // two buckets are one step
          const at::Tensor gradient = RandomGradient({12, 11}, group.rank(), step);
          GradBucket bucket = MakeBucket({gradient}), same = MakeBucket({gradient});
          bucket.index = index;
          bucket.is_last = index == 1;
          EXPECT_EQ(Reduce(hook, bucket).equal(Reduce(plain, same)), step < 3) << "step " << step << ", " << index;
        }
      }
    });
  }
}

TEST(PowerSgd, GivesEveryRankTheSameBits) {
  for (const Factory factory : {&PowerSgd, &BatchedPowerSgd}) {
    for (const bool warm_start : {false, true}) {
      std::vector<at::Tensor> reduced(3);
      OnRanks(3, [&](ProcessGroup& group) {
        PowerSgdOptions options = FromTheStart(3);
        options.warm_start = warm_start;
        const CommunicationHook hook = Make(factory, group, options);
        for (int step = 0; step < 4; ++step) {
          reduced[group.rank()] = Reduce(hook, MakeBucket({RandomGradient({20, 30}, group.rank(), step),
                                                           RandomGradient({9}, group.rank(), step)}));
        }
      });
      EXPECT_TRUE(reduced[0].equal(reduced[1]));
      EXPECT_TRUE(reduced[0].equal(reduced[2]));
    }
  }
}

TEST(PowerSgd, CountsElementsAndBytesOfCompressedSteps) {
  OnRanks(2, [](ProcessGroup& group) {
    PowerSgdOptions options = FromTheStart(2);
    options.start_power_sgd_iter = 1;
    options.statistics = std::make_shared<CompressionStatistics>();
    const CommunicationHook hook = Make(PowerSgd, group, options);
    EXPECT_EQ(options.statistics->rate(), 0);
    for (int step = 0; step < 3; ++step)
      Reduce(hook,
             MakeBucket({RandomGradient({20, 30}, group.rank(), step, at::kDouble), at::zeros({9}, at::kDouble)}));
    EXPECT_EQ(options.statistics->elements_before, 2 * (20 * 30 + 9));
    EXPECT_EQ(options.statistics->elements_after, 2 * ((20 + 30) * 2 + 9));
    EXPECT_EQ(options.statistics->bytes_before, 8 * 2 * (20 * 30 + 9));
    EXPECT_EQ(options.statistics->bytes_after, 8 * 2 * ((20 + 30) * 2 + 9));
    EXPECT_DOUBLE_EQ(options.statistics->rate(), 609.0 / 109);
  });
}

TEST(BatchedPowerSgd, CountsASquareOfTheBucket) {
  OnRanks(2, [](ProcessGroup& group) {
    PowerSgdOptions options = FromTheStart(2);
    options.statistics = std::make_shared<CompressionStatistics>();
    Reduce(Make(BatchedPowerSgd, group, options), MakeBucket({at::ones({90}), at::ones({7})}));
    EXPECT_EQ(options.statistics->elements_before, 97);
    EXPECT_EQ(options.statistics->elements_after, 10 * 2 * 2);
  });
}

TEST(BatchedPowerSgd, ReproducesABucketOfItsRank) {
  for (const int ranks : {1, 2, 3}) {
    OnRanks(ranks, [&](ProcessGroup& group) {
      const CommunicationHook hook = Make(BatchedPowerSgd, group, FromTheStart(2));
      const auto square = [](int rank) { return LowRank(12, 12, 2, rank).view({-1}); };
      const at::Tensor own = square(group.rank());
      const at::Tensor reduced =
          Reduce(hook, MakeBucket({own.narrow(0, 0, 100).view({10, 10}), own.narrow(0, 100, 44)}));
      EXPECT_LT(Distance(reduced, Average(ranks, square)), 1e-4);
    });
  }
}

// Returns a hook's results for "a" and "b" in steps 0 to 3; from step 2 on in a bucket each where `relaid`.
std::vector<at::Tensor> TwoParameters(Factory factory, ProcessGroup& group, bool relaid) {
  const CommunicationHook hook = Make(factory, group, FromTheStart());
  std::vector<at::Tensor> results;
  for (int step = 0; step < 4; ++step) {
    const at::Tensor a = RandomGradient({12, 11}, group.rank(), step), b = RandomGradient({9, 14}, group.rank(), step);
    if (!relaid || step < 2) {
      results.push_back(Reduce(hook, MakeBucket({a, b}, {"a", "b"})));
      continue;
    }
    GradBucket first = MakeBucket({b}, {"b"}), second = MakeBucket({a}, {"a"});
    first.is_last = false;
    first.layout = second.layout = 1;
    second.index = 1;
    const at::Tensor reduced_b = Reduce(hook, first);
    results.push_back(at::cat({Reduce(hook, second), reduced_b}));
  }
  return results;
}

TEST(PowerSgd, KeepsErrorsAndWarmStartsInANewLayoutOfTheBuckets) {
  OnRanks(2, [](ProcessGroup& group) {
    const auto one = TwoParameters(PowerSgd, group, false), two = TwoParameters(PowerSgd, group, true);
    // A matrix product's last bits may depend on where in a bucket its factors lie. Lost errors make 1 and more.
    for (int step = 0; step < 4; ++step) EXPECT_LT(Distance(one[step], two[step]), 1e-4) << "step " << step;
  });
}

TEST(BatchedPowerSgd, KeepsErrorsInANewLayoutOfTheBuckets) {
  OnRanks(2, [](ProcessGroup& group) {
    const CommunicationHook hook = Make(BatchedPowerSgd, group, FromTheStart());
    const auto gradients = [](int rank) { return RandomGradient({60}, rank, 0); };
    const at::Tensor own = gradients(group.rank());
    at::Tensor applied = Reduce(hook, MakeBucket({own.narrow(0, 0, 20), own.narrow(0, 20, 40)}, {"a", "b"}));
    EXPECT_GT(Distance(applied, Average(2, gradients)), 1);
    for (int step = 0; step < 80; ++step) {
      GradBucket bucket = MakeBucket({at::zeros({40}), at::zeros({20})}, {"b", "a"});
      bucket.layout = 1;
      const at::Tensor rest = Reduce(hook, bucket);
      applied += at::cat({rest.narrow(0, 40, 20), rest.narrow(0, 0, 40)});
    }
    EXPECT_LT(Distance(applied, Average(2, gradients)), 0.01);
  });
}

TEST(BatchedPowerSgd, StartsAnewInANewLayoutOfTheBuckets) {
  OnRanks(2, [](ProcessGroup& group) {
    PowerSgdOptions options = FromTheStart();
    options.use_error_feedback = false;
    // In the second step, after a first one that had other gradients.
    const auto second = [&](int first_step, int layout) {
      const CommunicationHook hook = Make(BatchedPowerSgd, group, options);
      Reduce(hook, MakeBucket({RandomGradient({60}, group.rank(), first_step)}));
      GradBucket bucket = MakeBucket({RandomGradient({60}, group.rank(), 3)});
      bucket.layout = layout;
      return Reduce(hook, bucket);
    };
    EXPECT_FALSE(second(1, 0).equal(second(2, 0)));
    EXPECT_TRUE(second(1, 1).equal(second(2, 1)));
  });
}

TEST(PowerSgd, ComesBackFromGradientsOfZerosAndFromOnesThatAreNotFinite) {
  constexpr float kBad[] = {0, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (const Factory factory : {&PowerSgd, &BatchedPowerSgd}) {
    for (const int64_t r : {1, 2, 3}) {
      for (const float bad : kBad) {
        SCOPED_TRACE(absl::StrCat("rank ", r, ", gradients of ", bad));
        OnRanks(2, [&](ProcessGroup& group) {
          const CommunicationHook hook = Make(factory, group, FromTheStart(r));
          const at::Tensor reduced = Reduce(hook, MakeBucket({at::full({12, 12}, bad)}));
          EXPECT_EQ(reduced.equal(at::zeros({144})), bad == 0);
          const auto gradient = [&](int rank) { return LowRank(12, 12, r, rank); };
          for (int step = 0; step < 2; ++step) {
            const at::Tensor next = Reduce(hook, MakeBucket({gradient(group.rank())}));
            EXPECT_LT(Distance(next.view({12, 12}), Average(2, gradient)), 1e-4) << "step " << step;
          }
        });
      }
    }
  }
}

TEST(PowerSgd, WorksWithinA16BitWrapper) {
  OnRanks(2, [](ProcessGroup& group) {
    const CommunicationHook hook = Bf16CompressWrapper(Make(PowerSgd, group, FromTheStart(2)));
    const auto gradient = [](int rank) { return LowRank(20, 30, 2, rank); };
    const at::Tensor average = Average(2, gradient);
    const at::Tensor reduced = Reduce(hook, MakeBucket({gradient(group.rank())})).view({20, 30});
    EXPECT_LT(Distance(reduced, average), 0.05 * average.norm().item<double>());
  });
}

TEST(PowerSgd, RefusesOptionsOutOfRange) {
  OnRanks(1, [](ProcessGroup& group) {
    const auto refusal = [&](const std::function<void(PowerSgdOptions&)>& spoil) {
      PowerSgdOptions options;
      spoil(options);
      const absl::Status status = PowerSgd(&group, options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(BatchedPowerSgd(&group, options).status(), status);
      return std::string(status.message());
    };
    EXPECT_THAT(refusal([](PowerSgdOptions& o) { o.matrix_approximation_rank = 0; }),
                HasSubstr("matrix_approximation_rank is 0, expected 1 or more"));
    EXPECT_THAT(refusal([](PowerSgdOptions& o) { o.start_power_sgd_iter = -1; }), HasSubstr("start_power_sgd_iter"));
    EXPECT_THAT(refusal([](PowerSgdOptions& o) { o.min_compression_rate = 0; }), HasSubstr("min_compression_rate"));
    EXPECT_THAT(refusal([](PowerSgdOptions& o) { o.orthogonalization_epsilon = NAN; }),
                HasSubstr("orthogonalization_epsilon is nan"));
  });
}

}  // namespace
}  // namespace lockstep::ddp::hooks
