// Programs of the last release compile without a change.

#include "gtest/gtest.h"
#include "lockstep/tools/launch/agent_link/agent_link.h"
#include "lockstep/tools/launch/failure.h"
#include "lockstep/tools/launch/report.h"
#include "lockstep/tools/launch/spawn.h"
#include "lockstep/tools/launch/streams.h"
#include "lockstep/tools/launch/supervisor.h"

namespace lockstep::launch {
namespace {

TEST(MovedHeaders, HaveWhatTheyHadBefore) {
  LaunchOptions options;
  options.tee.every_rank = Streams::kBoth;
  EXPECT_TRUE(absl::IsInvalidArgument(Launch({}, options)));
  EXPECT_TRUE(absl::IsInvalidArgument(Spawn(0, [](int) { return absl::OkStatus(); })));
  EXPECT_FALSE(ReportError(absl::InternalError("no launcher")));
  EXPECT_FALSE(FirstFailure(absl::InternalError("no launcher")));
  EXPECT_TRUE(absl::IsFailedPrecondition(AgentLink::Open().status()));
}

}  // namespace
}  // namespace lockstep::launch
