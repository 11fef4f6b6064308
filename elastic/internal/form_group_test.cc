#include "lockstep/elastic/internal/form_group.h"

#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/tools/launch/internal/master_socket.h"

namespace lockstep::elastic::internal {
namespace {

// Local rank 0 of this node has died, and its next process is not there yet.
TEST(FormGroup, TakesALocalRankThatIsNotBelowTheNumberOfRanksOnTheNode) {
  launch::RankGeneration generation;
  generation.number = 2;
  generation.local_rank = 1;
  generation.nnodes = 2;
  generation.master_addr = "127.0.0.1";
  generation.master_port = *launch::internal::FreePort();
  const auto group = FormGroup(generation, "auto", absl::Seconds(30), nullptr, nullptr);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->size(), 1);
  EXPECT_STREQ(getenv("LOCAL_RANK"), "1");
  EXPECT_STREQ(getenv("LOCAL_WORLD_SIZE"), "2");
}

}  // namespace
}  // namespace lockstep::elastic::internal
