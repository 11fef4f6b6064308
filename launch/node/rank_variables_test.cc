#include "lockstep/launch/node/rank_variables.h"

#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

RankPlace ThirdRankOfTwoNodes() {
  RankPlace place;
  place.local_rank = 1;
  place.nproc_per_node = 2;
  place.first_rank = 2;
  place.world_size = 4;
  place.node_rank = 1;
  place.nnodes = 2;
  place.master_addr = "10.0.0.1";
  place.master_port = 29500;
  place.run_id = "none";
  return place;
}

TEST(RankVariables, AreTorchruns) {
  EXPECT_THAT(RankVariables(ThirdRankOfTwoNodes(), false),
              ElementsAre(Pair("GROUP_RANK", "1"), Pair("GROUP_WORLD_SIZE", "2"), Pair("LOCAL_RANK", "1"),
                          Pair("LOCAL_WORLD_SIZE", "2"), Pair("MASTER_ADDR", "10.0.0.1"), Pair("MASTER_PORT", "29500"),
                          Pair("OMP_NUM_THREADS", "1"), Pair("RANK", "3"), Pair("ROLE_NAME", "default"),
                          Pair("ROLE_RANK", "3"), Pair("ROLE_WORLD_SIZE", "4"), Pair("TORCHELASTIC_MAX_RESTARTS", "0"),
                          Pair("TORCHELASTIC_RESTART_COUNT", "0"), Pair("TORCHELASTIC_RUN_ID", "none"),
                          Pair("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
                          Pair("TORCHELASTIC_USE_AGENT_STORE", "False"), Pair("WORLD_SIZE", "4")));
}

TEST(RankVariables, HaveTheRoleAndTheRestarts) {
  RankPlace place = ThirdRankOfTwoNodes();
  place.role = "trainer";
  place.restart_count = 2;
  place.max_restarts = 3;
  const std::map<std::string, std::string> variables = RankVariables(place, false);
  EXPECT_THAT(variables, Contains(Pair("ROLE_NAME", "trainer")));
  EXPECT_THAT(variables, Contains(Pair("TORCHELASTIC_RESTART_COUNT", "2")));
  EXPECT_THAT(variables, Contains(Pair("TORCHELASTIC_MAX_RESTARTS", "3")));
}

TEST(RankVariables, AVirtualLocalRankIsZero) {
  RankPlace place = ThirdRankOfTwoNodes();
  place.virtual_local_rank = true;
  const std::map<std::string, std::string> variables = RankVariables(place, false);
  EXPECT_THAT(variables, Contains(Pair("LOCAL_RANK", "0")));
  EXPECT_THAT(variables, Contains(Pair("RANK", "3")));
}

TEST(DeviceOf, IsTheLocalRanksOwn) {
  EXPECT_EQ(*DeviceOf(3, nullptr), "3");
  EXPECT_EQ(*DeviceOf(0, "4, 6"), "4");
  EXPECT_EQ(*DeviceOf(1, "4, 6"), "6");
  EXPECT_EQ(*DeviceOf(1, "GPU-a,GPU-b"), "GPU-b");
  EXPECT_EQ(DeviceOf(2, "4,6").status(),
            absl::InvalidArgumentError("local rank 2 needs a device, but CUDA_VISIBLE_DEVICES=4,6 has 2"));
  EXPECT_EQ(DeviceOf(0, "").status(),
            absl::InvalidArgumentError("local rank 0 needs a device, but CUDA_VISIBLE_DEVICES= has 0"));
}

TEST(RankVariables, LeaveThreadsAloneWhereSomebodyHasDecided) {
  RankPlace place = ThirdRankOfTwoNodes();
  EXPECT_THAT(RankVariables(place, true), Not(Contains(Pair("OMP_NUM_THREADS", "1"))));
  place.nproc_per_node = 1;
  EXPECT_THAT(RankVariables(place, false), Not(Contains(Pair("OMP_NUM_THREADS", "1"))));
}

TEST(ChangedEnvironment, ReplacesAddsAndDropsWhatWasMeantForThisProcess) {
  setenv("RANK", "7", 1);
  setenv("KEPT", "a=b", 1);
  setenv(kMasterSocketVariable, "3", 1);
  setenv(kSpawnCallVariable, "1 #1", 1);
  const std::vector<std::string> environment = ChangedEnvironment({{"RANK", "1"}, {"NEW", ""}});
  EXPECT_THAT(environment, Contains("RANK=1"));
  EXPECT_THAT(environment, Not(Contains("RANK=7")));
  EXPECT_THAT(environment, Contains("NEW="));
  EXPECT_THAT(environment, Contains("KEPT=a=b"));
  EXPECT_THAT(environment, Not(Contains(StartsWith("LOCKSTEP_"))));
}

}  // namespace
}  // namespace lockstep::launch
