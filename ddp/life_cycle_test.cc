// Handles and graphs that live longer or shorter than expected, passes that fail, and modules beside each other.

#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/thread_backend.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::EveryWay;
using testing::ExpectClose;
using testing::Gradients;
using testing::Mlp;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::Wrapped;

void ExpectNextStepsRight(DistributedDataParallel<Mlp>& ddp, const ProcessGroup& group) {
  for (int step = 1; step < 4; ++step) {
    ddp.zero_grad();
    auto reference = SeededMlp(1);
    ddp(Share(Batch(8, 4, step), group)).pow(2).mean().backward();
    reference(Batch(8, 4, step)).pow(2).mean().backward();
    ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
  }
}

TEST(LifeCycle, AForwardThatThrowsLeavesTheNextStepRight) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      EXPECT_THROW(ddp(torch::ones({2, 99}, torch::kDouble)), c10::Error);
      ExpectNextStepsRight(ddp, group);
      EXPECT_THROW(ddp(torch::ones({2, 99}, torch::kDouble)), c10::Error);
      ExpectNextStepsRight(ddp, group);
    }
  });
}

TEST(LifeCycle, ABackwardThatThrowsMidwayLeavesTheNextStepRight) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      bool fail = true;
      // Once second.bias and second.weight are in.
      ddp.module()->first->bias.register_hook([&fail](const torch::Tensor& gradient) {
        if (fail) throw std::runtime_error("in backward");
        return gradient;
      });
      for (int round = 0; round < 2; ++round) {  // the second time with buckets of which some are being reduced
        fail = true;
        const auto loss = ddp(Batch(2, 4, 0)).sum();
        EXPECT_THROW(loss.backward(), std::runtime_error);
        fail = false;
        ExpectNextStepsRight(ddp, group);
      }
    }
  });
}

TEST(LifeCycle, AForwardWithoutGradientsChangesNothing) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      for (int round = 0; round < 2; ++round) {
        {
          const torch::NoGradGuard no_grad;
          EXPECT_FALSE(ddp(Batch(2, 4, 0)).requires_grad());
        }
        ExpectNextStepsRight(ddp, group);
      }
      EXPECT_EQ(ddp.statistics().size(), 6);
    }
  });
}

TEST(LifeCycle, AForwardWhoseBackwardNeverComesChangesNothing) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      ddp(Batch(2, 4, 0));
      ExpectNextStepsRight(ddp, group);
    }
  });
}

TEST(LifeCycle, AHandleMayBeMovedBetweenForwardAndBackward) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      const auto loss = ddp(Share(Batch(8, 4, 0), group)).pow(2).mean();
      auto moved = std::move(ddp);
      loss.backward();
      auto reference = SeededMlp(1);
      reference(Batch(8, 4, 0)).pow(2).mean().backward();
      ExpectClose(Gradients(moved.parameters()), Gradients(reference->parameters()));
      ExpectNextStepsRight(moved, group);
    }
  });
}

TEST(LifeCycle, AGraphThatOutlivesItsHandleGivesEachRankItsOwnGradients) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto net = SeededMlp(1);
      torch::Tensor loss;
      {
        auto ddp = Wrapped(net, group, options);
        loss = ddp(Share(Batch(8, 4, 0), group)).pow(2).mean();
      }
      loss.backward();
      auto alone = SeededMlp(1);
      alone(Share(Batch(8, 4, 0), group)).pow(2).mean().backward();
      ExpectClose(Gradients(net->parameters()), Gradients(alone->parameters()));
    }
  });
}

TEST(LifeCycle, GradientsOutliveTheHandleAndItsBuckets) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto net = SeededMlp(1);
      {
        auto ddp = Wrapped(net, group, options);
        ddp(Share(Batch(8, 4, 0), group)).pow(2).mean().backward();
      }
      auto reference = SeededMlp(1);
      reference(Batch(8, 4, 0)).pow(2).mean().backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
      // Wrapped once more, it goes on from them.
      auto again = Wrapped(net, group, options);
      again(Share(Batch(8, 4, 1), group)).pow(2).mean().backward();
      reference(Batch(8, 4, 1)).pow(2).mean().backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

// Buckets are laid out anew in the second forward, which is when the old ones' memory is free only if no gradient is
// left in it.
TEST(LifeCycle, GradientsMoveIntoTheNewBucketsUnlessSomebodyHoldsThem) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.bucket_cap_mb = 1e-6;
    auto ddp = Wrapped(SeededMlp(1), group, options);
    const torch::Tensor batch = Share(Batch(8, 4, 0), group);
    ddp(batch).pow(2).mean().backward();
    const torch::Tensor held = ddp.parameters()[0].grad();
    const std::vector<torch::Tensor> gradients = Gradients(ddp.parameters());
    std::vector<const void*> places;
    const torch::Tensor loss = ddp(batch).pow(2).mean();
    for (const torch::Tensor& parameter : ddp.parameters()) places.push_back(parameter.grad().const_data_ptr());
    ExpectClose(Gradients(ddp.parameters()), gradients);
    EXPECT_TRUE(ddp.parameters()[0].grad().is_same(held));
    loss.backward();
    for (size_t i = 1; i < places.size(); ++i) EXPECT_EQ(ddp.parameters()[i].grad().const_data_ptr(), places[i]) << i;
  });
}

TEST(LifeCycle, SeveralModulesShareAGroup) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto a = Wrapped(SeededMlp(1), group, options);
      auto b = Wrapped(SeededMlp(2), group, options);
      auto reference_a = SeededMlp(1), reference_b = SeededMlp(2);
      for (int step = 0; step < 3; ++step) {
        a.zero_grad();
        b.zero_grad();
        reference_a->zero_grad();
        reference_b->zero_grad();
        const auto share = Share(Batch(8, 4, step), group);
        // One backward through both.
        (a(share) * b(share)).mean().backward();
        (reference_a(Batch(8, 4, step)) * reference_b(Batch(8, 4, step))).mean().backward();
        ExpectClose(Gradients(a.parameters()), Gradients(reference_a->parameters()));
        ExpectClose(Gradients(b.parameters()), Gradients(reference_b->parameters()));
      }
    }
  });
}

// Parameters of two dtypes, one of them empty, one with a memory format of its own, one a number.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    image = register_parameter(
        "image", torch::arange(24, torch::kDouble).view({1, 2, 3, 4}).contiguous(torch::MemoryFormat::ChannelsLast));
    empty = register_parameter("empty", torch::zeros({0, 3}, torch::kDouble));
    number = register_parameter("number", torch::tensor(2.0, torch::kDouble));
    single = register_parameter("single", torch::ones({3}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return (image.sum({0, 1, 2}) * x).sum() * number + empty.sum() + (single * 2).sum().to(torch::kDouble) * x.sum();
  }
  torch::Tensor image, empty, number, single;
};

TEST(LifeCycle, ParametersMayBeEmptyScalarsOfSeveralDtypesAndMemoryFormats) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto net = std::make_shared<OddImpl>();
      auto ddp = Wrapped(net, group, options);
      OddImpl reference;
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad(/*set_to_none=*/step != 1);
        reference.zero_grad();
        ddp(Batch(2, 4, step)[group.rank()]).backward();
        for (int rank = 0; rank < 2; ++rank) reference.forward(Batch(2, 4, step)[rank]).div(2).backward();
        ExpectClose(Gradients(net->parameters()), Gradients(reference.parameters()), 1e-6);  // one is of float
        ExpectClose({net->image.grad(), net->number.grad()}, {reference.image.grad(), reference.number.grad()});
        EXPECT_EQ(net->image.grad().strides(), net->image.strides());
      }
    }
  });
}

struct Checkpoint {
  std::vector<torch::Tensor> parameters;
  BucketLayout layout;
};

constexpr int kSteps = 6;

Mlp WideMlp(uint64_t seed) { return SeededMlp(seed, /*hidden=*/64); }

Checkpoint CheckpointOf(const DistributedDataParallel<Mlp>& ddp) {
  Checkpoint checkpoint;
  for (const torch::Tensor& parameter : ddp.parameters()) checkpoint.parameters.push_back(parameter.detach().clone());
  checkpoint.layout = ddp.bucket_layout();
  return checkpoint;
}

void TrainStep(int step, DistributedDataParallel<Mlp>& ddp, const ProcessGroup& group) {
  ddp.zero_grad();
  ddp(Share(Batch(24, 4, step), group)).pow(2).mean().backward();
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : ddp.parameters()) parameter.sub_(parameter.grad(), 0.1);
}

DistributedDataParallel<Mlp> Resumed(const Checkpoint& checkpoint, ProcessGroup& group, const Options& options) {
  const Mlp net = WideMlp(2);
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < checkpoint.parameters.size(); ++i) net->parameters()[i].copy_(checkpoint.parameters[i]);
  }
  auto ddp = Wrapped(net, group, options);
  EXPECT_EQ(ddp.RestoreBucketLayout(checkpoint.layout), absl::OkStatus());
  return ddp;
}

// Resumes a run before each of its steps.
void ExpectResumedRunsToBeTheSameBits(ProcessGroup& group, const Options& options) {
  auto whole = Wrapped(WideMlp(1), group, options);
  std::vector<Checkpoint> checkpoints;
  for (int step = 0; step < kSteps; ++step) {
    checkpoints.push_back(CheckpointOf(whole));
    TrainStep(step, whole, group);
  }
  EXPECT_EQ(checkpoints[0].layout, BucketLayout());
  EXPECT_GT(checkpoints[1].layout.size(), 1);
  EXPECT_EQ(checkpoints[2].layout, checkpoints[1].layout);
  for (int from = 0; from < kSteps; ++from) {
    SCOPED_TRACE(absl::StrCat("rank ", group.rank(), " of ", group.size(), ", resumed before step ", from));
    auto resumed = Resumed(checkpoints[from], group, options);
    for (int step = from; step < kSteps; ++step) TrainStep(step, resumed, group);
    EXPECT_EQ(resumed.bucket_layout(), whole.bucket_layout());
    for (size_t i = 0; i < whole.parameters().size(); ++i)
      EXPECT_TRUE(resumed.parameters()[i].equal(whole.parameters()[i])) << i;
  }
}

TEST(LifeCycle, ARunResumedWithItsBucketLayoutIsTheUninterruptedOnesBitsOverGloo) {
  comm::InitOptions over_gloo;
  over_gloo.backend = "gloo";
  over_gloo.timeout = absl::Seconds(30);
  Options options;
  options.bucket_cap_mb = 0.001;
  for (const int ranks : {3, 4}) {
    const auto body = [&](ProcessGroup& group) {
      ExpectResumedRunsToBeTheSameBits(group, options);
      return absl::OkStatus();
    };
    for (const absl::Status& status : comm::testing::InitRanks(over_gloo, ranks, body))
      EXPECT_EQ(status, absl::OkStatus());
  }
}

// Python's ranks begin with one bucket.
TEST(LifeCycle, WherePythonRanksMayBeInTheGroupTheCheckpointsLayoutIsEmptyAndChangesNothing) {
  comm::testing::ThreadHub hub(1, absl::Seconds(10));
  auto group = ProcessGroup::FromC10d({{c10::DeviceType::CPU, comm::testing::MakeThreadBackend(hub, 0)}},
                                      c10::make_intrusive<c10d::HashStore>());
  ASSERT_TRUE(group.ok()) << group.status();
  auto ddp = Wrapped(SeededMlp(1), **group);
  EXPECT_EQ(ddp.RestoreBucketLayout({}), absl::OkStatus());
  TrainStep(0, ddp, **group);
  TrainStep(1, ddp, **group);
  EXPECT_EQ(ddp.bucket_layout(), BucketLayout());
  EXPECT_EQ(ddp.RestoreBucketLayout(ddp.bucket_layout()), absl::OkStatus());
  EXPECT_EQ(ddp.RestoreBucketLayout({{"first.weight"}}),
            absl::FailedPreconditionError(
                "rank 0: RestoreBucketLayout: Python ranks begin with one bucket, so all ranks must"));
}

TEST(LifeCycle, ABucketLayoutIsKeptInACheckpointForAsManyRanks) {
  const BucketLayout layout = {{"b", "a"}, {"c"}};
  const checkpoint::Value value = ToValue(layout, 3);
  EXPECT_EQ(*ToBucketLayout(value, 3), layout);
  EXPECT_EQ(*ToBucketLayout(value, 4), BucketLayout());
  EXPECT_EQ(ToBucketLayout(checkpoint::Value::Dict({{"world_size", 3}}), 3).status(),
            absl::InvalidArgumentError("buckets: expected a list"));
  const checkpoint::Value numbers = checkpoint::Value::List({checkpoint::Value::List({1})});
  EXPECT_EQ(ToBucketLayout(checkpoint::Value::Dict({{"world_size", 3}, {"buckets", numbers}}), 3).status(),
            absl::InvalidArgumentError("buckets: expected names that are strings"));
}

// Says why, and leaves the module as it was.
template <typename Net>
void ExpectMisfit(DistributedDataParallel<Net>& ddp, const ProcessGroup& group, const BucketLayout& layout,
                  const std::string& why) {
  EXPECT_EQ(ddp.RestoreBucketLayout(layout),
            absl::InvalidArgumentError(absl::StrCat("rank ", group.rank(), ": RestoreBucketLayout: ", why)));
  EXPECT_EQ(ddp.bucket_layout(), BucketLayout());
}

TEST(LifeCycle, ABucketLayoutThatDoesNotFitIsRefusedByName) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(1), group);
    ExpectMisfit(ddp, group, {{"first.weight", "third"}},
                 "bucket 0 of the layout has third, which is not a parameter that buckets reduce");
    ExpectMisfit(ddp, group, {{"first.weight"}, {"first.bias", "first.weight"}},
                 "bucket 1 of the layout has first.weight, which bucket 0 has already");
    ExpectMisfit(ddp, group, {{"first.weight"}, {}}, "bucket 1 of the layout is empty");
    ExpectMisfit(ddp, group, {{"first.weight", "first.bias", "second.weight"}},
                 "no bucket of the layout has parameter second.bias");
    const std::string mine = group.rank() == 0 ? "first.weight" : "first.bias";
    ExpectMisfit(ddp, group, {{"second.weight"}, {mine}},
                 "the ranks' layouts differ at bucket 1: rank 0 has first.weight, rank 1 has first.bias");
    ExpectNextStepsRight(ddp, group);

    torch::nn::Linear single(2, 2), twofold(2, 2);
    twofold->to(torch::kDouble);
    auto dtypes = Wrapped(torch::nn::Sequential(single, twofold), group);
    ExpectMisfit(dtypes, group, {{"0.weight", "1.weight", "0.bias", "1.bias"}},
                 "bucket 0 of the layout has 0.weight, Float on cpu, and 1.weight, Double on cpu: expected one dtype "
                 "and device");
    torch::nn::Embedding sparse(torch::nn::EmbeddingOptions(2, 2).sparse(true));
    auto words = Wrapped(torch::nn::Sequential(sparse, single), group);
    ExpectMisfit(words, group, {{"0.weight", "1.weight"}},
                 "bucket 0 of the layout has 0.weight, whose gradient is sparse, and others: expected it alone");
  });
}

}  // namespace
}  // namespace lockstep::ddp
