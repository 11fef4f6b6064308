#include "lockstep/elastic/internal/form_group.h"

#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/launch/node/master_socket.h"

namespace lockstep::elastic::internal {
namespace {

std::vector<std::string> Environment() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) variables.emplace_back(*entry);
  return variables;
}

comm::InitOptions OptionsOf(const comm::RankEnvironment& environment) {
  comm::InitOptions options;
  options.environment = environment;
  options.timeout = absl::Seconds(30);
  return options;
}

// Local rank 0 of this node has died, and its next process is not there yet. The environment is the one of the process
// that has this rank otherwise.
TEST(FormGroup, TakesThePlaceFromTheGenerationAndLeavesTheEnvironmentAsItIs) {
  setenv("RANK", "5", /*overwrite=*/1);
  setenv("WORLD_SIZE", "7", /*overwrite=*/1);
  setenv("MASTER_ADDR", "nowhere.invalid", /*overwrite=*/1);
  const std::vector<std::string> before = Environment();
  launch::RankGeneration generation;
  generation.number = 2;
  generation.local_rank = 1;
  generation.nnodes = 2;
  generation.master_addr = "127.0.0.1";
  generation.master_port = *launch::FreePort();
  const auto group = FormGroup(OptionsOf(EnvironmentOf(generation)), generation.number);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->rank(), 0);
  EXPECT_EQ((*group)->size(), 1);
  EXPECT_EQ(Environment(), before);
}

TEST(ReadFixedGeneration, IsOfOneRankIfNobodyHasStartedOthers) {
  auto fixed = ReadFixedGeneration([](absl::string_view) { return std::nullopt; });
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->generation.number, 1);
  EXPECT_EQ(fixed->generation.rank, 0);
  EXPECT_EQ(fixed->generation.world_size, 1);
  const auto group = FormGroup(OptionsOf(fixed->environment), /*number=*/1);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->size(), 1);
}

TEST(ReadFixedGeneration, HasThePlaceThatAnotherLauncherGives) {
  const std::map<std::string, std::string> torchrun = {
      {"TORCHELASTIC_RUN_ID", "a"}, {"RANK", "5"},       {"WORLD_SIZE", "8"},  {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "4"},    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "7"}};
  const auto fixed = ReadFixedGeneration([&](absl::string_view name) -> std::optional<std::string> {
    const auto found = torchrun.find(std::string(name));
    if (found == torchrun.end()) return std::nullopt;
    return found->second;
  });
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->generation.rank, 5);
  EXPECT_EQ(fixed->generation.world_size, 8);
  EXPECT_EQ(fixed->generation.local_rank, 1);
  EXPECT_EQ(fixed->generation.local_world_size, 4);
  EXPECT_EQ(fixed->generation.node_rank, 1);
  EXPECT_EQ(fixed->generation.nnodes, 2);
  EXPECT_EQ(fixed->environment.master_addr, "h");
  EXPECT_EQ(fixed->environment.master_port, 7);
}

TEST(ReadFixedGeneration, HasThePlaceThatTheProgramGivesAndMeetsWhereItSays) {
  const auto nobody = [](absl::string_view) { return std::nullopt; };
  comm::ExplicitRank place;
  place.rank = 3;
  place.world_size = 4;
  const auto one_of_four = ReadFixedGeneration(nobody, place);
  ASSERT_TRUE(one_of_four.ok()) << one_of_four.status();
  EXPECT_EQ(one_of_four->generation.rank, 3);
  EXPECT_EQ(one_of_four->generation.world_size, 4);
  place.rank = 0;
  place.world_size = 1;
  const auto fixed = ReadFixedGeneration(nobody, place);
  comm::InitOptions options = OptionsOf(fixed->environment);
  EXPECT_NE(FormGroup(options, /*number=*/1).status(), absl::OkStatus()) << "nobody says where the ranks meet";
  options.init_method = absl::StrCat("file://", getenv("TEST_TMPDIR"), "/store");
  const auto group = FormGroup(options, /*number=*/1);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->size(), 1);
}

}  // namespace
}  // namespace lockstep::elastic::internal
