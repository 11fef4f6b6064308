#include "lockstep/launch/process/process.h"

#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

TEST(StartProcess, NamesTheCpusThatAreRefused) {
  ProcessSpec spec;
  spec.path = "/bin/true";
  spec.argv = {"true"};
  spec.cpus = {99998, 99999};
  const absl::Status status = StartProcess(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "program \"true\" cannot run on CPUs 99998-99999: Invalid argument");
}

}  // namespace
}  // namespace lockstep::launch
