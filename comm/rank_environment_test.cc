#include "lockstep/comm/rank_environment.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::comm {
namespace {

EnvironmentLookup Fake(const std::map<std::string, std::string>& variables) {
  return [variables](absl::string_view name) -> absl::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return absl::nullopt;
    return found->second;
  };
}

TEST(RankEnvironment, IsReadFromTorchrunsVariables) {
  const auto env = ReadRankEnvironment(Fake({{"RANK", "5"},
                                             {"WORLD_SIZE", "8"},
                                             {"LOCAL_RANK", "1"},
                                             {"LOCAL_WORLD_SIZE", "4"},
                                             {"MASTER_ADDR", "node0"},
                                             {"MASTER_PORT", "29501"},
                                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                             {"TORCHELASTIC_RESTART_COUNT", "2"}}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->world_size, 8);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_world_size, 4);
  EXPECT_EQ(env->master_addr, "node0");
  EXPECT_EQ(env->master_port, 29501);
  EXPECT_TRUE(env->use_agent_store);
  EXPECT_EQ(env->restart_count, 2);
  EXPECT_EQ(env->master_listen_fd, -1);
}

TEST(RankEnvironment, IsEmptyWithoutVariables) {
  const auto env = ReadRankEnvironment(Fake({}));
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, absl::nullopt);
  EXPECT_EQ(env->world_size, absl::nullopt);
  EXPECT_EQ(env->local_rank, 0);
  EXPECT_EQ(env->master_port, -1);
  EXPECT_FALSE(env->use_agent_store);
}

TEST(RankEnvironment, AnErrorNamesTheVariableAndItsValue) {
  const auto message = [](std::map<std::string, std::string> variables) {
    return std::string(ReadRankEnvironment(Fake(std::move(variables))).status().message());
  };
  EXPECT_EQ(message({{"RANK", "two"}}), "environment variable RANK=\"two\" is not a number from 0 to 2147483647");
  EXPECT_EQ(message({{"RANK", "-1"}}), "environment variable RANK=\"-1\" is not a number from 0 to 2147483647");
  EXPECT_EQ(message({{"WORLD_SIZE", "0"}}),
            "environment variable WORLD_SIZE=\"0\" is not a number from 1 to 2147483647");
  EXPECT_EQ(message({{"MASTER_PORT", "99999"}}),
            "environment variable MASTER_PORT=\"99999\" is not a number from 1 to 65535");
  EXPECT_EQ(message({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "environment variable RANK=2 is not below WORLD_SIZE=2");
  EXPECT_EQ(message({{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "4"}}),
            "environment variable LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4");
}

}  // namespace
}  // namespace lockstep::comm
