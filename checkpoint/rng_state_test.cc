#include "lockstep/checkpoint/rng_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/serialize.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

TEST(RngState, DrawsAgainWhatWasDrawnAfterIt) {
  // An odd number of normal draws leaves one in the generator's cache.
  at::randn({1});
  const auto state = RngState();
  ASSERT_TRUE(state.ok()) << state.status();
  const auto kept = Deserialize(*Serialize(*state));
  ASSERT_TRUE(kept.ok()) << kept.status();
  const at::Tensor normal = at::randn({3}), uniform = at::rand({50});
  at::rand({1000});
  ASSERT_EQ(SetRngState(*kept), absl::OkStatus());
  EXPECT_TRUE(at::randn({3}).equal(normal));
  EXPECT_TRUE(at::rand({50}).equal(uniform));
}

TEST(RngState, RefusesWhatIsNoState) {
  const at::Tensor before = RngState()->Find("cpu")->tensor();
  EXPECT_THAT(std::string(SetRngState(Value::Dict()).message()), HasSubstr("[\"cpu\"]: no such key"));
  EXPECT_EQ(SetRngState(Value::Dict({{"cpu", 3}})),
            absl::InvalidArgumentError("[\"cpu\"]: expected a ByteTensor, found int"));
  const absl::Status status = SetRngState(Value::Dict({{"cpu", at::zeros({7}, at::kByte)}}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("[\"cpu\"]: "));
  EXPECT_TRUE(RngState()->Find("cpu")->tensor().equal(before));
}

TEST(RngState, SaysThatDevicesAreMissing) {
  Value state = *RngState();
  state.Set("cuda", Value::List(std::vector<Value>(1000, *state.Find("cpu"))));
  const absl::Status status = SetRngState(state);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("found 1000"));
}

}  // namespace
}  // namespace lockstep::checkpoint
