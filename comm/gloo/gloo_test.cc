#include <ATen/ATen.h>
#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/gloo/internal/gloo_backend.h"
#include "lockstep/comm/gloo/internal/native_form.h"
#include "lockstep/comm/testing/backend_conformance.h"
#include "lockstep/comm/testing/init_ranks.h"

namespace lockstep::comm {
namespace testing {

INSTANTIATE_TEST_SUITE_P(Gloo, BackendConformance, ::testing::Values(ConformanceCase{"gloo"}));

}  // namespace testing

namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

std::string WhatReduceThrows(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  try {
    internal::Reduce("all_reduce", tensor, op, 2);
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

InitOptions OverGloo() {
  InitOptions options;
  options.backend = "gloo";
  options.timeout = absl::Seconds(30);
  return options;
}

// Two elements a rank, of which the ranks share index 0, and one none at all.
TEST(Gloo, SumsSparseTensorsAndCoalescesThem) {
  const auto body = [](ProcessGroup& group) {
    const at::Tensor indices = at::tensor({group.rank(), 0}, at::kLong).view({1, 2});
    const at::Tensor sparse =
        group.rank() == 2 ? at::zeros({4, 2}).to_sparse(1) : at::sparse_coo_tensor(indices, at::ones({2, 2}), {4, 2});
    LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(sparse));
    EXPECT_TRUE(sparse.is_coalesced());
    EXPECT_TRUE(sparse.to_dense().equal(at::tensor({3.0f, 1.0f, 0.0f, 0.0f}).view({4, 1}).expand({4, 2})));
    const at::Tensor none = at::zeros({4, 2}).to_sparse(1);
    LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(none));
    EXPECT_EQ(none._nnz(), 0);
    EXPECT_EQ(group.AllReduce(at::ones({2}, at::kComplexFloat).to_sparse()).code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(group.AllReduce(at::ones({1, 1, 1, 1, 1}).to_sparse()).code(), absl::StatusCode::kUnimplemented);
    return group.Barrier();
  };
  for (const absl::Status& status : testing::InitRanks(OverGloo(), 3, body)) EXPECT_EQ(status, absl::OkStatus());
}

// Gloo's thread on the rank that gets more than it expects throws what nobody can catch.
TEST(Gloo, AMessageThatIsTooLongIsTheCallsErrorAndNotTheProcesssEnd) {
  InitOptions options = OverGloo();
  options.timeout = absl::Seconds(3);
  const auto body = [](ProcessGroup& group) { return group.Broadcast(at::ones({group.rank() == 0 ? 50 : 5}), 0); };
  for (int repeat = 0; repeat < 2; ++repeat) {
    const std::vector<absl::Status> statuses = testing::InitRanks(options, 2, body);
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kUnavailable);
    // Newer Gloo's words, or LibTorch 2.7's.
    EXPECT_THAT(std::string(statuses[1].message()), AnyOf(HasSubstr("Received data size doesn't match expected size"),
                                                          HasSubstr("op.preamble.length <= op.nbytes")));
  }
}

TEST(Gloo, TakesTheAddressThatTheWayToTheMasterBeginsAt) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("127.0.0.77"), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("no-such-host.invalid"), "");
}

TEST(Gloo, TakesTheInterfacesThatTheEnvironmentNames) {
  setenv("GLOO_SOCKET_IFNAME", "lo,lo", 1);
  EXPECT_EQ(internal::ChooseDevices(BackendContext()).size(), 2);
  unsetenv("GLOO_SOCKET_IFNAME");
}

}  // namespace
}  // namespace lockstep::comm
