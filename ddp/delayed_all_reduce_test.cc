#include <torch/torch.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
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
                           ": parameter first.weight got its gradient after that of the "
                           "parameter that its all_reduce follows"));
  });
}

}  // namespace
}  // namespace lockstep::ddp
