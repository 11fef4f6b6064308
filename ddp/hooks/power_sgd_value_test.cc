#include "lockstep/ddp/hooks/power_sgd_value.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/hooks/test_bucket.h"

namespace lockstep::ddp::hooks {
namespace {

using checkpoint::Value;
using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using Factory = absl::StatusOr<CommunicationHook> (*)(ProcessGroup*, const PowerSgdOptions&);

// The reduced gradients of steps `first` to `last`, the first of which is uncompressed.
std::vector<at::Tensor> Steps(Factory factory, ProcessGroup& group, std::shared_ptr<PowerSgdState> state, int first,
                              int last) {
  PowerSgdOptions options;
  options.start_power_sgd_iter = 1;
  options.matrix_approximation_rank = 2;
  options.state = std::move(state);
  absl::StatusOr<CommunicationHook> hook = factory(&group, options);
  ThrowIfError(hook.status());
  std::vector<at::Tensor> reduced;
  for (int step = first; step < last; ++step) {
    // A parameter that comes in later has a random start of its own.
    std::vector<at::Tensor> gradients = {RandomGradient({12, 10}, group.rank(), step)};
    if (step >= 4) gradients.push_back(RandomGradient({9, 11}, group.rank(), 100 + step));
    GradBucket bucket = MakeBucket(gradients);
    bucket.is_last = true;
    reduced.push_back(Reduce(*hook, bucket).clone());
  }
  return reduced;
}

TEST(PowerSgdValue, TrainingContinuesToTheSameBits) {
  for (const Factory factory : {Factory{PowerSgd}, Factory{BatchedPowerSgd}}) {
    EXPECT_EQ(RunRanksOk(2,
                         [&](ProcessGroup& group) {
                           const auto whole = Steps(factory, group, nullptr, 0, 6);
                           const auto state = std::make_shared<PowerSgdState>();
                           Steps(factory, group, state, 0, 3);
                           const auto bytes = checkpoint::Serialize(ToValue(*state));
                           ASSERT_TRUE(bytes.ok()) << bytes.status();
                           auto loaded = ToPowerSgdState(*checkpoint::Deserialize(*bytes));
                           ASSERT_TRUE(loaded.ok()) << loaded.status();
                           EXPECT_EQ(loaded->iteration, 3);
                           const auto rest =
                               Steps(factory, group, std::make_shared<PowerSgdState>(*std::move(loaded)), 3, 6);
                           for (int step = 0; step < 3; ++step) EXPECT_TRUE(rest[step].equal(whole[3 + step])) << step;
                           const auto anew = Steps(factory, group, nullptr, 3, 6);
                           EXPECT_FALSE(anew[1].equal(whole[4])) << "the state matters";
                         }),
              absl::OkStatus());
  }
}

TEST(PowerSgdValue, NamesWhatIsWrong) {
  Value value = ToValue(PowerSgdState());
  value.Set("errors", Value::Dict({{"w", 3}}));
  EXPECT_EQ(ToPowerSgdState(value).status(), absl::InvalidArgumentError("errors: expected a dict of tensors by name"));
  EXPECT_EQ(ToPowerSgdState(Value::Dict()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::ddp::hooks
