#include "lockstep/ddp/statistics.h"

#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/chrome_trace.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/testing/training.h"
#include "nlohmann/json.hpp"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::Branches;
using ::testing::ElementsAre;
using testing::ExpectClose;
using testing::Gradients;
using ::testing::HasSubstr;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::Thrown;
using testing::Used;
using testing::Wrapped;
using Json = nlohmann::json;

// A bucket of 1 MB that was reduced from `start` to `end`, in milliseconds.
BucketStatistics Reduced(int index, int start, int end) {
  BucketStatistics bucket;
  bucket.index = index;
  bucket.bytes = 1000000;
  bucket.parameters = std::make_shared<std::vector<std::string>>(1, absl::StrCat("p", index));
  bucket.ready = start * 1000000;
  bucket.start = start * 1000000;
  bucket.end = end * 1000000;
  return bucket;
}

// Forward until 10 ms, gradients from 12 to 20, end at 30.
StepStatistics Made(std::vector<BucketStatistics> buckets) {
  StepStatistics step;
  step.rank = 3;
  step.step = 12;
  step.unix_time = 5000000;
  step.forward_end = 10000000;
  step.backward_begin = 12000000;
  step.last_gradient = 20000000;
  step.end = 30000000;
  step.buckets = std::move(buckets);
  return step;
}

TEST(StepStatistics, HiddenShareIsTheTimeBeforeTheLastGradientOfAllInWhichAnyBucketWasReduced) {
  EXPECT_EQ(Made({}).HiddenShare(), 0);
  EXPECT_EQ(Made({Reduced(0, 13, 19)}).HiddenShare(), 1);
  EXPECT_EQ(Made({Reduced(0, 20, 25)}).HiddenShare(), 0);
  EXPECT_EQ(Made({Reduced(0, 15, 25)}).HiddenShare(), 0.5);
  // 14 to 18 once, though two buckets were, and 24 to 28.
  EXPECT_EQ(Made({Reduced(0, 14, 17), Reduced(1, 15, 18), Reduced(2, 24, 28)}).HiddenShare(), 0.5);
  BucketStatistics skipped = Reduced(1, 0, 30);
  skipped.start = skipped.end = -1;
  EXPECT_EQ(Made({Reduced(0, 15, 25), skipped}).HiddenShare(), 0.5);
  EXPECT_EQ(Made({Reduced(0, 15, 25), skipped}).bytes(), 1000000);
}

TEST(StepStatistics, SummaryIsALine) {
  StepStatistics step = Made({Reduced(0, 15, 25), Reduced(1, 20, 26)});
  EXPECT_EQ(
      Summary(step),
      "rank 3 step 12: 30.00 ms, forward 10.00, backward 8.00; 2 buckets, 2.0 MB reduced in 11.00 ms, 45 % hidden");
  step.non_finite = {{1, "fc.weight"}, {-1, "fc.bias"}, {-1, "fc.bias", /*virtual_rank=*/5}};
  EXPECT_THAT(Summary(step), HasSubstr("hidden; not finite: fc.weight on rank 1; not finite: fc.bias in the sum; "
                                       "not finite: fc.bias on virtual rank 5"));
}

TEST(ChromeTrace, HasAProcessARankAndARowForComputingAndForEachBucket) {
  StepStatistics other = Made({Reduced(0, 15, 25)});
  other.rank = 0;
  const Json trace = Json::parse(ChromeTrace({Made({Reduced(0, 15, 25), Reduced(1, 20, 26)}), other}));
  EXPECT_EQ(trace.at("displayTimeUnit"), "ms");
  std::multiset<std::string> names, spans;
  for (const Json& event : trace.at("traceEvents")) {
    const std::string who = absl::StrCat(event.at("pid").get<int>(), "/", event.at("tid").get<int>(), " ");
    if (event.at("ph") == "M") names.insert(who + event.at("args").at("name").get<std::string>());
    if (event.at("ph") != "X") continue;
    spans.insert(absl::StrCat(who, event.at("name").get<std::string>(), " ", event.at("ts").get<double>(), "+",
                              event.at("dur").get<double>()));
  }
  EXPECT_THAT(names, ElementsAre("0/0 compute", "0/0 rank 0", "0/1 bucket 0", "3/0 compute", "3/0 rank 3",
                                 "3/1 bucket 0", "3/2 bucket 1"));
  // In microseconds since 1970: the step began at 5 ms.
  EXPECT_THAT(spans,
              ElementsAre("0/0 backward 17000+8000", "0/0 forward 5000+10000", "0/0 wait for buckets 25000+10000",
                          "0/1 bucket 0 20000+10000", "3/0 backward 17000+8000", "3/0 forward 5000+10000",
                          "3/0 wait for buckets 25000+10000", "3/1 bucket 0 20000+10000", "3/2 bucket 1 25000+6000"));
}

TEST(ChromeTrace, IsWrittenOrSaysThatItCouldNotBe) {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/trace.json");
  const std::vector<StepStatistics> steps = {Made({Reduced(0, 15, 25)})};
  EXPECT_EQ(WriteChromeTrace(path, steps), absl::OkStatus());
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), ChromeTrace(steps));
  EXPECT_EQ(WriteChromeTrace("/nowhere/trace.json", steps),
            absl::NotFoundError("the trace file /nowhere/trace.json: No such file or directory"));
  EXPECT_EQ(WriteChromeTrace("/dev/full", steps),
            absl::ResourceExhaustedError("the trace file /dev/full: No space left on device"));
}

TEST(Statistics, OfARealRunArePlausible) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.bucket_cap_mb = 120.0 / (1 << 20);
    auto ddp = Wrapped(SeededMlp(1), group, options);
    EXPECT_TRUE(ddp.statistics().empty());
    for (int step = 0; step < 3; ++step) ddp(Batch(8, 4, step)).sum().backward();
    ASSERT_EQ(ddp.statistics().size(), 3);
    int64_t before = 0;
    for (int i = 0; i < 3; ++i) {
      const StepStatistics& step = ddp.statistics()[i];
      EXPECT_EQ(step.rank, group.rank());
      EXPECT_EQ(step.step, i);
      EXPECT_GT(step.unix_time, before);
      before = step.unix_time;
      EXPECT_GT(step.forward_end, 0);
      EXPECT_GT(step.backward_begin, step.forward_end);
      EXPECT_GT(step.last_gradient, step.backward_begin);
      EXPECT_GT(step.end, step.last_gradient);
      EXPECT_EQ(step.bytes(), (5 * 4 + 5 + 3 * 5 + 3) * 8);
      ASSERT_EQ(step.buckets.size(), i == 0 ? 1 : 2);
      for (const BucketStatistics& bucket : step.buckets) {
        EXPECT_GE(bucket.ready, step.backward_begin);
        EXPECT_GE(bucket.start, bucket.ready);
        EXPECT_GT(bucket.end, bucket.start);
        EXPECT_LE(bucket.end, step.end);
      }
      EXPECT_GE(step.HiddenShare(), 0);
      EXPECT_LE(step.HiddenShare(), 1);
      EXPECT_TRUE(step.non_finite.empty());
    }
    EXPECT_THAT(*ddp.statistics()[2].buckets[1].parameters, ElementsAre("first.bias", "first.weight"));
    EXPECT_THAT(Summary(ddp.statistics()[2]), HasSubstr(absl::StrCat("rank ", group.rank(), " step 2: ")));
  });
}

TEST(Statistics, KeepTheLast128Steps) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(SeededMlp(1), group);
    for (int step = 0; step < 130; ++step) ddp(Batch(2, 4, 0)).sum().backward();
    EXPECT_EQ(ddp.statistics().size(), 128);
    EXPECT_EQ(ddp.statistics().front().step, 2);
    EXPECT_EQ(ddp.statistics().back().step, 129);
  });
}

using Hooked = DistributedDataParallel<Branches>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Options Looking(NonFinite non_finite, bool view = false) {
  Options options;
  options.non_finite = non_finite;
  options.gradient_as_bucket_view = view;
  return options;
}

// In the step, the gradient of a branch is made this.
void MakeGradient(Hooked& ddp, int branch, double value) {
  ddp.module()->weights[branch].register_hook(
      [value](const torch::Tensor& gradient) { return torch::full_like(gradient, value); });
}

void Step(Hooked& ddp, const ProcessGroup& group) {
  ddp(Share(Batch(8, 4, 0), group), Used{0, 1, 2}).mean().backward();
}

std::vector<std::string> Found(const Hooked& ddp) {
  std::vector<std::string> found;
  for (const NonFiniteGradient& gradient : ddp.statistics().back().non_finite)
    found.push_back(absl::StrCat(gradient.rank, " ", gradient.parameter));
  return found;
}

TEST(NonFinite, ReportedNamesParameterAndRankOnEveryRankAndTheStepGoesOn) {
  for (const bool view : {false, true}) {
    OnRanks(3, [&](ProcessGroup& group) {
      auto ddp = Wrapped(Branches(3), group, Looking(NonFinite::kReport, view));
      Step(ddp, group);
      EXPECT_THAT(Found(ddp), ElementsAre());
      ddp.zero_grad();
      if (group.rank() == 1) MakeGradient(ddp, 2, NAN);
      if (group.rank() == 2) MakeGradient(ddp, 0, -kInfinity);
      Step(ddp, group);
      EXPECT_THAT(Found(ddp), ElementsAre("1 branch2", "2 branch0"));
      EXPECT_TRUE(ddp.module()->weights[2].grad().isnan().all().item<bool>());
      EXPECT_TRUE(ddp.module()->weights[1].grad().isfinite().all().item<bool>());
      EXPECT_THAT(Summary(ddp.statistics().back()),
                  HasSubstr("; not finite: branch2 on rank 1; not finite: branch0 on rank 2"));
    });
  }
}

TEST(NonFinite, ThrownIsTheSameErrorOnEveryRankAndTheNextStepIsRight) {
  for (const bool view : {false, true}) {
    for (const bool find_unused : {false, true}) {
      for (const bool with_hook : {false, true}) {
        SCOPED_TRACE(absl::StrCat("view ", view, ", find_unused ", find_unused, ", hook ", with_hook));
        OnRanks(2, [&](ProcessGroup& group) {
          Options options = Looking(NonFinite::kThrow, view);
          options.find_unused_parameters = find_unused;
          auto ddp = Wrapped(Branches(3), group, options);
          if (with_hook) {
            EXPECT_EQ(ddp.RegisterHook(hooks::AllReduce(&group)), absl::OkStatus());
          }
          double spoiled = group.rank() == 1 ? NAN : 1;
          ddp.module()->weights[1].register_hook([&](const torch::Tensor& gradient) { return gradient * spoiled; });
          EXPECT_EQ(Thrown([&] { Step(ddp, group); }),
                    absl::DataLossError("the gradient of branch1 is not finite on rank 1"));
          spoiled = 1;
          Branches reference(3);
          for (int step = 0; step < 2; ++step) {
            ddp.zero_grad();
            reference->zero_grad();
            Step(ddp, group);
            reference(Batch(8, 4, 0), Used{0, 1, 2}).mean().backward();
            ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
          }
        });
      }
    }
  }
}

TEST(NonFinite, AnOverflowInTheSumOnlyIsNoRanksOwn) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, Looking(NonFinite::kThrow));
    // Sums without dividing.
    EXPECT_EQ(ddp.RegisterHook(
                  [&](GradBucket& bucket) { return Future(group.AllReduceAsync(bucket.buffer), bucket.buffer); }),
              absl::OkStatus());
    MakeGradient(ddp, 1, 1e308);
    EXPECT_EQ(Thrown([&] { Step(ddp, group); }),
              absl::DataLossError(
                  "the gradient of branch1 is not finite in the sum over the ranks, though it is finite on each"));
  });
}

TEST(NonFinite, AnOverflowInAHooksHalfPrecisionIsFound) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, Looking(NonFinite::kReport));
    EXPECT_EQ(ddp.RegisterHook(hooks::Fp16Compress(&group)), absl::OkStatus());
    MakeGradient(ddp, 0, 1e6);
    Step(ddp, group);
    EXPECT_THAT(Found(ddp), ElementsAre("-1 branch0"));
  });
}

TEST(NonFinite, LargeNumbersWhoseOwnSumOverflowsAreFinite) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, Looking(NonFinite::kThrow));
    MakeGradient(ddp, 0, 1.5e308);  // four of them
    Step(ddp, group);
    EXPECT_THAT(Found(ddp), ElementsAre());
    EXPECT_TRUE(ddp.module()->weights[0].grad().eq(1.5e308).all().item<bool>());
  });
}

TEST(NonFinite, IgnoredIsNotLookedFor) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group);
    if (group.rank() == 1) MakeGradient(ddp, 2, NAN);
    Step(ddp, group);
    EXPECT_THAT(Found(ddp), ElementsAre());
    EXPECT_TRUE(ddp.module()->weights[2].grad().isnan().all().item<bool>());
  });
}

TEST(NonFinite, OfASparseGradientToo) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true)), group,
                       Looking(NonFinite::kThrow));
    const auto loss = ddp(torch::tensor({1, 2})).sum() * (group.rank() == 0 ? kInfinity : 1.0);
    EXPECT_EQ(Thrown([&] { loss.backward(); }), absl::DataLossError("the gradient of weight is not finite on rank 0"));
    ddp.zero_grad();
    ddp(torch::tensor({1, 2})).sum().backward();
    EXPECT_TRUE(ddp.module()->weight.grad().to_dense()[1].equal(torch::ones({2})));
  });
}

}  // namespace
}  // namespace lockstep::ddp
