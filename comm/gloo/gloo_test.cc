#include <ATen/ATen.h>
#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/gloo/gloo_backend.h"
#include "lockstep/comm/gloo/native_form.h"
#include "lockstep/comm/internal/local_address.h"
#include "lockstep/comm/testing/backend_conformance.h"

namespace lockstep::comm {
namespace testing {

INSTANTIATE_TEST_SUITE_P(Gloo, BackendConformance, ::testing::Values(ConformanceCase{"gloo"}));

}  // namespace testing

namespace {

using ::testing::HasSubstr;

std::string WhatReduceThrows(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  try {
    Reduce("all_reduce", tensor, op, 2);
  } catch (const c10::NotImplementedError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(Gloo, NamesTheReductionThatItDoesNotHave) {
  EXPECT_THAT(WhatReduceThrows(at::zeros({2}, at::kComplexFloat), c10d::ReduceOp::PRODUCT),
              HasSubstr("all_reduce of ComplexFloat: the gloo backend has no reduction but sum and average"));
  EXPECT_THAT(WhatReduceThrows(at::zeros({2}, at::kUInt64), c10d::ReduceOp::MAX),
              HasSubstr("all_reduce of UInt64: the gloo backend has no minimum or maximum"));
  EXPECT_THAT(WhatReduceThrows(at::zeros({2}, at::kFloat8_e5m2), c10d::ReduceOp::SUM),
              HasSubstr("all_reduce of Float8_e5m2: the gloo backend has no reduction"));
}

TEST(Gloo, TakesTheAddressThatTheWayToTheMasterBeginsAt) {
  EXPECT_EQ(internal::LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(internal::LocalAddressTowards("127.0.0.77"), "127.0.0.1");
  EXPECT_EQ(internal::LocalAddressTowards("no-such-host.invalid"), "");
}

TEST(Gloo, TakesTheInterfacesThatTheEnvironmentNames) {
  setenv("GLOO_SOCKET_IFNAME", "lo,lo", 1);
  EXPECT_EQ(ChooseDevices(BackendContext()).size(), 2);
  unsetenv("GLOO_SOCKET_IFNAME");
}

}  // namespace
}  // namespace lockstep::comm
