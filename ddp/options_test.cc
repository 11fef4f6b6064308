#include "lockstep/ddp/options.h"

#include <torch/torch.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/internal/replica.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using ::testing::ElementsAre;
using testing::ExpectClose;
using testing::Gradients;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::Thrown;
using testing::Wrapped;

// That every rank's Wrap() says so of a module.
template <typename Net>
void ExpectRefused(const Net& net, const Options& options, const std::string& message) {
  OnRanks(2, [&](ProcessGroup& group) {
    EXPECT_EQ(Wrap(net, &group, options).status(),
              absl::InvalidArgumentError(absl::StrCat("rank ", group.rank(), ": ddp::Wrap: ", message)));
  });
}

void ExpectRefused(const Options& options, const std::string& message) {
  ExpectRefused(SeededMlp(1), options, message);
}

TEST(Options, SizesOfBucketsArePositiveNumbers) {
  Options options;
  options.bucket_cap_mb = 0;
  ExpectRefused(options, "bucket_cap_mb is 0, expected a positive number");
  options.bucket_cap_mb = std::numeric_limits<double>::infinity();
  ExpectRefused(options, "bucket_cap_mb is inf, expected a positive number");
  options.bucket_cap_mb = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused(options, "bucket_cap_mb is nan, expected a positive number");
  options = {};
  options.bucket_cap_mb_list = {1, -2};
  ExpectRefused(options, "bucket_cap_mb_list is -2, expected a positive number");
  options.bucket_cap_mb_list = {1, 2};
  options.bucket_cap_mb = 25;
  ExpectRefused(options, "bucket_cap_mb and bucket_cap_mb_list are both set: expected one of them");
}

TEST(Options, DeviceIdsIsTheOneDeviceOfTheModule) {
  Options options;
  options.device_ids = {torch::Device("cuda:0")};
  ExpectRefused(options,
                "device_ids is cuda:0, but parameter first.weight is on cpu, and the module on 1 devices: expected a "
                "module on that one device");
  options.device_ids = {torch::Device("cuda:0"), torch::Device("cuda:1")};
  ExpectRefused(options, "device_ids has 2 devices, expected one or none");
}

TEST(Options, OutputDeviceNeedsDeviceIds) {
  Options options;
  options.output_device = torch::Device("cpu");
  ExpectRefused(options, "output_device is set without device_ids");
}

struct OnTwoKindsOfDevicesImpl : torch::nn::Module {
  OnTwoKindsOfDevicesImpl() {
    register_parameter("a", torch::ones({2}));
    register_parameter("b", torch::ones({2}, torch::kMeta));
  }
};

TEST(Options, AModuleIsOnDevicesOfOneType) {
  ExpectRefused(std::make_shared<OnTwoKindsOfDevicesImpl>(), {},
                "parameter b is on meta and a on cpu: expected devices of one type");
}

TEST(Options, NamesAreTheModules) {
  Options options;
  options.parameters_to_ignore = {"third.weight"};
  ExpectRefused(options, "parameters_to_ignore names third.weight, which the module does not have");
  const std::string one =
      "only one of delay_all_reduce_named_params and param_to_hook_all_reduce is set: expected both or neither";
  options = {};
  options.delay_all_reduce_named_params = {"second.bias"};
  ExpectRefused(options, one);
  options = {};
  options.param_to_hook_all_reduce = "second.bias";
  ExpectRefused(options, one);
  options.delay_all_reduce_named_params = {"third.bias"};
  ExpectRefused(
      options,
      "the all_reduce of third.bias cannot be delayed or waited for: the buckets reduce no parameter of that name");
  options.delay_all_reduce_named_params = {"second.bias"};
  options.param_to_hook_all_reduce = "third.weight";
  ExpectRefused(
      options,
      "the all_reduce of third.weight cannot be delayed or waited for: the buckets reduce no parameter of that name");
}

TEST(Options, SkippingNeedsAWayToKnowWhatIsUnused) {
  Options options;
  options.skip_all_reduce_unused_params = true;
  ExpectRefused(options, "skip_all_reduce_unused_params is set, but neither find_unused_parameters nor static_graph");
}

TEST(Options, MixedPrecisionIsOfFloatingPoint) {
  Options options;
  options.mixed_precision = MixedPrecision{torch::kLong, std::nullopt, std::nullopt};
  ExpectRefused(options, "mixed_precision.param_dtype is Long, expected a floating-point dtype");
  options.mixed_precision = MixedPrecision{std::nullopt, torch::kInt, std::nullopt};
  ExpectRefused(options, "mixed_precision.reduce_dtype is Int, expected a floating-point dtype");
  options.mixed_precision = MixedPrecision{std::nullopt, std::nullopt, torch::kBool};
  ExpectRefused(options, "mixed_precision.buffer_dtype is Bool, expected a floating-point dtype");
}

using Layout = std::vector<std::vector<int>>;

// Checks the buckets of 0 first.weight (160 bytes), 1 first.bias (40), 2 second.weight (120), 3 second.bias (24): at
// first, and once gradients came as 3, 2, 1, 0.
void ExpectLayouts(const Options& options, const Layout& first, const Layout& rebuilt) {
  OnRanks(2, [&](ProcessGroup& group) {
    auto net = SeededMlp(1);
    auto replica = internal::Replica::Create(*net, &group, options);
    ASSERT_TRUE(replica.ok()) << replica.status();
    EXPECT_EQ((*replica)->reducer().BucketLayout(), first);
    for (int step = 0; step < 2; ++step) {
      (*replica)->BeforeForward(*net);
      net(Batch(2, 4, 0)).sum().backward();
    }
    EXPECT_EQ((*replica)->reducer().BucketLayout(), rebuilt);
  });
}

double MiB(double bytes) { return bytes / (1 << 20); }

TEST(Options, BucketCapIsALimitOnceBucketsAreLaidOutAnew) {
  Options options;
  ExpectLayouts(options, {{0, 1, 2, 3}}, {{3, 2, 1, 0}});
  options.bucket_cap_mb = MiB(120);
  ExpectLayouts(options, {{0, 1, 2, 3}}, {{3, 2}, {1, 0}});
  options.bucket_cap_mb = MiB(1);
  ExpectLayouts(options, {{0, 1, 2, 3}}, {{3}, {2}, {1}, {0}});
}

TEST(Options, ACapListLimitsOneBucketAfterTheOtherFromTheFirstStepOn) {
  Options options;
  options.bucket_cap_mb_list = {MiB(24), MiB(120)};
  ExpectLayouts(options, {{3}, {1, 2}, {0}}, {{3}, {2}, {1, 0}});
  options.bucket_cap_mb_list = {MiB(1000)};
  ExpectLayouts(options, {{0, 1, 2, 3}}, {{3, 2, 1, 0}});
}

TEST(Options, WithFindUnusedParametersTheFirstLayoutHasTheLimitsAndStays) {
  Options options;
  options.find_unused_parameters = true;
  options.bucket_cap_mb = MiB(120);
  ExpectLayouts(options, {{3}, {1, 2}, {0}}, {{3}, {1, 2}, {0}});
}

TEST(Options, ParametersToIgnoreAreNeitherBroadcastNorReduced) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.parameters_to_ignore = {"first.bias", "mean"};
    auto net = SeededMlp(group.rank());
    net->register_buffer("mean", torch::full({2}, group.rank() + 5));
    net->register_buffer("variance", torch::full({2}, group.rank() + 5));
    auto ddp = Wrapped(net, group, options);
    EXPECT_TRUE(net->first->bias.equal(SeededMlp(group.rank())->first->bias));
    EXPECT_TRUE(net->first->weight.equal(SeededMlp(0)->first->weight));
    EXPECT_EQ(ddp.parameters().size(), 4);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      ddp(Share(Batch(8, 4, 0), group)).pow(2).mean().backward();
      // Each rank's gradients alone, computed with its own bias; averaged where not ignored.
      std::vector<torch::Tensor> average;
      torch::Tensor own;
      for (int rank = 0; rank < 2; ++rank) {
        auto alone = SeededMlp(0);
        const torch::NoGradGuard no_grad;
        alone->first->bias.copy_(SeededMlp(rank)->first->bias);
        {
          const torch::AutoGradMode grad(true);
          alone(Share(Batch(8, 4, 0), rank, 2)).pow(2).mean().backward();
        }
        for (int i = 0; i < 4; ++i) {
          const torch::Tensor half = alone->parameters()[i].grad() / 2;
          if (rank == 0) average.push_back(half);
          if (rank == 1) average[i] += half;
        }
        if (rank == group.rank()) own = alone->first->bias.grad().clone();
      }
      average[1] = own;
      ExpectClose(Gradients(ddp.parameters()), average);
    }
    EXPECT_EQ(net->named_buffers()["mean"][0].item<int64_t>(), group.rank() + 5);
    EXPECT_EQ(net->named_buffers()["variance"][0].item<int64_t>(), 5);
  });
}

TEST(Options, WithoutInitSyncEachRankKeepsItsParameters) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.init_sync = false;
    auto net = SeededMlp(group.rank());
    auto ddp = Wrapped(net, group, options);
    ExpectClose(net->parameters(), SeededMlp(group.rank())->parameters(), 0);
    EXPECT_FALSE(SeededMlp(0)->parameters()[0].equal(SeededMlp(1)->parameters()[0]));
  });
}

TEST(Options, WithoutBroadcastBuffersEachRankKeepsItsBuffers) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool broadcast : {true, false}) {
      Options options;
      options.broadcast_buffers = broadcast;
      auto net = SeededMlp(0);
      net->register_buffer("mean", torch::full({2}, group.rank() + 5));
      const torch::Tensor mean = net->named_buffers()["mean"];
      auto ddp = Wrapped(net, group, options);
      EXPECT_EQ(mean[0].item<int64_t>(), broadcast ? 5 : group.rank() + 5);
      mean.fill_(group.rank() + 7);
      ddp(Batch(8, 4, 0)).sum().backward();
      EXPECT_EQ(mean[0].item<int64_t>(), broadcast ? 7 : group.rank() + 7);
    }
  });
}

// Gradients come in the order second.bias, second.weight, first.bias, first.weight.
Options SecondAfter(const std::string& parameter, bool view = false) {
  Options options;
  options.delay_all_reduce_named_params = {"second.weight", "second.bias"};
  options.param_to_hook_all_reduce = parameter;
  options.gradient_as_bucket_view = view;
  return options;
}

TEST(DelayedAllReduce, GradientsAreRight) {
  for (const char* after : {"first.bias", "first.weight"}) {
    for (const bool view : {false, true}) {
      for (const bool find_unused : {false, true}) {
        SCOPED_TRACE(absl::StrCat("after ", after, ", view ", view, ", find_unused ", find_unused));
        OnRanks(2, [&](ProcessGroup& group) {
          Options options = SecondAfter(after, view);
          options.find_unused_parameters = find_unused;
          auto ddp = Wrapped(SeededMlp(1), group, options);
          auto reference = SeededMlp(1);
          for (int step = 0; step < 4; ++step) {
            ddp.zero_grad(/*set_to_none=*/step != 2);
            reference->zero_grad();
            {
              const NoSync no_sync(ddp);
              ddp(Share(Batch(8, 4, step + 9), group)).pow(2).mean().backward();
            }
            ddp(Share(Batch(8, 4, step), group)).pow(2).mean().backward();
            reference(Batch(8, 4, step)).pow(2).mean().backward();
            reference(Batch(8, 4, step + 9)).pow(2).mean().backward();
            ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
          }
        });
      }
    }
  }
}

TEST(DelayedAllReduce, TheNamedParametersAreOneBucketThatStartsAfterTheOtherOnesGradient) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const char* after : {"first.bias", "first.weight"}) {
      auto ddp = Wrapped(SeededMlp(1), group, SecondAfter(after));
      ddp(Batch(8, 4, 0)).sum().backward();
      const auto& buckets = ddp.statistics().back().buckets;
      ASSERT_EQ(buckets.size(), 2);
      EXPECT_THAT(*buckets[0].parameters, ElementsAre("first.weight", "first.bias"));
      EXPECT_THAT(*buckets[1].parameters, ElementsAre("second.weight", "second.bias"));
      // first.weight is the last gradient, which fills the other bucket too.
      if (after == std::string("first.bias")) {
        EXPECT_LT(buckets[1].start, buckets[0].start);
      } else {
        EXPECT_GE(buckets[1].start, buckets[0].start);
      }
    }
    auto ddp = Wrapped(SeededMlp(1), group);
    ddp(Batch(8, 4, 0)).sum().backward();
    EXPECT_EQ(ddp.statistics().back().buckets.size(), 1);
  });
}

TEST(DelayedAllReduce, AParameterThatComesLaterThanTheOneItsAllReduceFollowsIsNamed) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.delay_all_reduce_named_params = {"first.weight"};
    options.param_to_hook_all_reduce = "second.weight";
    auto ddp = Wrapped(SeededMlp(1), group, options);
    const auto loss = ddp(Batch(8, 4, 0)).sum();
    EXPECT_EQ(Thrown([&] { loss.backward(); }).message(),
              absl::StrCat("rank ", group.rank(),
                           ": parameter first.weight got its gradient after the "
                           "parameter that starts its all_reduce"));
  });
}

}  // namespace
}  // namespace lockstep::ddp
