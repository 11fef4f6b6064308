#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/testing/training.h"

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
using testing::Share;
using testing::Thrown;
using testing::Used;
using testing::Wrapped;

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
    EXPECT_EQ(
        Thrown([&] { Step(ddp, group); }),
        absl::DataLossError("the gradient of branch1 is not finite once summed over the ranks, though it is on each"));
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
