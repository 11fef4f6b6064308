#include "lockstep/comm/agreement.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using testing::RunRanks;
using testing::RunRanksOk;

TEST(GatherAgreed, GivesWhatEachRankGaveByRank) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         // Any bytes: what separates the parts of a message too.
                         const std::string own = absl::StrCat("\n", std::string(1, '\0'), group.rank(), "\nx");
                         const auto all = GatherAgreed(&group, "Test", own);
                         ASSERT_TRUE(all.ok()) << all.status();
                         for (int rank = 0; rank < 3; ++rank) {
                           EXPECT_EQ((*all)[rank], absl::StrCat("\n", std::string(1, '\0'), rank, "\nx"));
                         }
                       }),
            absl::OkStatus());
}

TEST(GatherAgreed, TheLowestRanksErrorIsEveryRanks) {
  const std::vector<absl::Status> results = RunRanks(4, [](ProcessGroup& group) {
    absl::StatusOr<std::string> own = std::string("fine");
    if (group.rank() % 2 == 1) own = absl::ResourceExhaustedError(absl::StrCat("disk ", group.rank(), " is full"));
    return GatherAgreed(&group, "Test", own).status();
  });
  for (const absl::Status& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(results[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(results[0].message()), MatchesRegex("rank 1 \\(.*\\): disk 1 is full; and 1 more"));
}

TEST(AgreedErrorOf, IsTheRankAndWhatItSaid) {
  EXPECT_EQ(RunRanksOk(3,
                       [](ProcessGroup& group) {
                         const absl::Status own =
                             group.rank() == 0 ? absl::OkStatus() : absl::NotFoundError("line 1\nrank 7 (host a): x");
                         const absl::Status status = Annotate(Agree(&group, "Test", own), "Load");
                         const std::optional<AgreedError> error = AgreedErrorOf(status);
                         ASSERT_TRUE(error) << status;
                         EXPECT_EQ(error->rank, 1);
                         EXPECT_EQ(error->message, "line 1\nrank 7 (host a): x");
                       }),
            absl::OkStatus());
  EXPECT_FALSE(AgreedErrorOf(absl::OkStatus()));
  EXPECT_FALSE(AgreedErrorOf(absl::NotFoundError("rank 3 (host a, pid 47): full")));
}

TEST(GatherOutcomes, KeepsEachRanksError) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         absl::StatusOr<std::string> own = std::string("fine");
                         if (group.rank() == 0) own = absl::NotFoundError("nothing here");
                         const auto outcomes = GatherOutcomes(&group, "Test", own);
                         ASSERT_TRUE(outcomes.ok()) << outcomes.status();
                         EXPECT_EQ((*outcomes)[0].status().code(), absl::StatusCode::kNotFound);
                         EXPECT_EQ(*(*outcomes)[1], "fine");
                       }),
            absl::OkStatus());
}

TEST(Agree, RanksInDifferentCallsAreTold) {
  const std::vector<absl::Status> results = RunRanks(3, [](ProcessGroup& group) {
    const absl::Status status = Agree(&group, group.rank() < 2 ? "Save" : "Load", absl::OkStatus());
    EXPECT_EQ(Agree(&group, "Next", absl::OkStatus()), absl::OkStatus()) << "the group goes on";
    return status;
  });
  for (const absl::Status& result : results) {
    EXPECT_EQ(result, absl::InvalidArgumentError("the ranks are in different calls: rank 0 in Save, rank 2 in Load"));
  }
}

TEST(Agree, ARankAloneHasItsOwnOutcome) {
  EXPECT_EQ(Agree(nullptr, "Test", absl::OkStatus()), absl::OkStatus());
  EXPECT_EQ(Agree(nullptr, "Test", absl::DataLossError("torn")), absl::DataLossError("torn"));
  EXPECT_THAT(*GatherAgreed(nullptr, "Test", std::string("own")), ElementsAre("own"));
}

}  // namespace
}  // namespace lockstep::comm
