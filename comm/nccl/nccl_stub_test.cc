#include <gtest/gtest.h>

#include "lockstep/comm/backend.h"

namespace lockstep::comm {
namespace {

TEST(NcclStub, SaysHowToBuildWithCuda) {
  const auto candidates = ParseBackendSpec("cuda:nccl");
  ASSERT_TRUE(candidates.ok()) << candidates.status();
  const absl::Status made = candidates->by_device.at(c10::DeviceType::CUDA).front().create({}).status();
  EXPECT_EQ(made.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(
      made.message(),
      "backend \"nccl\": this program was built without CUDA; build it with --config=cuda, or in another workspace "
      "with --@lockstep//tools/flags:cuda, or in CMake with -DLOCKSTEP_CUDA=ON");
}

}  // namespace
}  // namespace lockstep::comm
