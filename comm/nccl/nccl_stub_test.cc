#include <gtest/gtest.h>

#include "lockstep/comm/backend.h"

namespace lockstep::comm {
namespace {

TEST(NcclStub, SaysHowToBuildWithCuda) {
  const auto selection = SelectBackends("cuda:nccl");
  ASSERT_TRUE(selection.ok()) << selection.status();
  const absl::Status made = selection->at(c10::DeviceType::CUDA).create({}).status();
  EXPECT_EQ(made.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(
      made.message(),
      "backend \"nccl\": this program was built without CUDA; build it with --config=cuda, or in another workspace "
      "with --@lockstep//tools/flags:cuda");
}

}  // namespace
}  // namespace lockstep::comm
