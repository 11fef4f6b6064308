#include "lockstep/ddp/amp/grad_scaler_value.h"

#include "gtest/gtest.h"

namespace lockstep::ddp {
namespace {

using checkpoint::Value;

// torch.amp.GradScaler().state_dict() of PyTorch 2.11, with other numbers.
Value OfPython() {
  return Value::Dict({{"scale", 1024.0},
                      {"growth_factor", 4.0},
                      {"backoff_factor", 0.25},
                      {"growth_interval", 100},
                      {"_growth_tracker", 7}});
}

TEST(GradScalerValue, HasPythonsKeysAndContinues) {
  const auto state = ToGradScalerState(OfPython());
  ASSERT_TRUE(state.ok()) << state.status();
  auto scaler = GradScaler::Create();
  ASSERT_TRUE(scaler.ok());
  ASSERT_EQ(scaler->LoadState(*state), absl::OkStatus());
  EXPECT_EQ(scaler->GetScale(), 1024);
  EXPECT_TRUE(Identical(ToValue(scaler->State()), OfPython()));
}

TEST(GradScalerValue, NamesWhatIsMissing) {
  EXPECT_EQ(ToGradScalerState(Value::Dict()).status(),
            absl::NotFoundError("[\"scale\"]: no such key; the dict is empty"));
}

}  // namespace
}  // namespace lockstep::ddp
