#include "lockstep/sampler/sampler_state_value.h"

#include <string>

#include "gtest/gtest.h"

namespace lockstep::sampler {
namespace {

using checkpoint::Value;

SamplerState Some() {
  SamplerState state;
  state.size = int64_t{1} << 62;
  state.num_replicas = 8;
  state.seed = -3;
  state.epoch = 5;
  state.consumed = 1234;
  state.shuffle = true;
  state.drop_last = true;
  state.permutation = Permutation::kFeistel;
  return state;
}

TEST(SamplerStateValue, GivesBackWhatItWasMadeOf) {
  for (const SamplerState& state : {Some(), SamplerState()}) {
    const auto found = ToSamplerState(ToValue(state));
    ASSERT_EQ(found.status(), absl::OkStatus());
    EXPECT_EQ(*found, state);
  }
}

TEST(SamplerStateValue, NamesWhatIsMissingOrUnknown) {
  Value value = ToValue(Some());
  value.Set("permutation", "quadratic");
  EXPECT_EQ(ToSamplerState(value).status(),
            absl::InvalidArgumentError("permutation: expected \"torch\" or \"feistel\", found \"quadratic\""));
  value.Set("seed", "seven");
  EXPECT_EQ(ToSamplerState(value).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToSamplerState(Value::Dict()).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep::sampler
