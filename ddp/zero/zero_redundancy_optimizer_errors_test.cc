// ZeroRedundancyOptimizer's refusals and errors.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/zero/internal/shards.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"

namespace lockstep::ddp::zero {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void OnRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) {
  EXPECT_EQ(RunRanksOk(ranks, body), absl::OkStatus());
}

// Returns an optimizer over two parameters.
std::unique_ptr<ZeroRedundancyOptimizer<torch::optim::SGD>> MadeOver(ProcessGroup& group) {
  auto zero = ZeroRedundancyOptimizer<torch::optim::SGD>::Create({at::ones({2}), at::ones({3})},
                                                                 torch::optim::SGDOptions(0.1), &group);
  ThrowIfError(zero.status());
  return *std::move(zero);
}

// Returns Create()'s message on each of two ranks. Rank 1 has other parameters.
std::vector<std::string> Refusals(const std::vector<at::Tensor>& rank_0s, const std::vector<at::Tensor>& rank_1s) {
  std::vector<std::string> messages(2);
  OnRanks(2, [&](ProcessGroup& group) {
    const auto zero = ZeroRedundancyOptimizer<torch::optim::SGD>::Create(group.rank() == 0 ? rank_0s : rank_1s,
                                                                         torch::optim::SGDOptions(0.1), &group);
    EXPECT_EQ(zero.status().code(), absl::StatusCode::kInvalidArgument);
    messages[group.rank()] = std::string(zero.status().message());
  });
  return messages;
}

TEST(ZeroRedundancyOptimizer, TellsEveryRankWhereTheirParametersDiffer) {
  const at::Tensor a = at::ones({2, 3}), b = at::ones({4}), c = at::ones({5});
  for (const std::string& message : Refusals({a, b}, {a, c})) {
    EXPECT_THAT(message, HasSubstr("differ at parameter 1: rank 0 has group 0 parameter 1 Float [4]"));
    EXPECT_THAT(message, HasSubstr("rank 1 has group 0 parameter 1 Float [5]"));
  }
  for (const std::string& message : Refusals({a}, {a, b})) EXPECT_THAT(message, HasSubstr("rank 0 has nothing"));
  for (const std::string& message : Refusals({a, at::Tensor()}, {a, b}))
    EXPECT_THAT(message, HasSubstr("group 0 parameter 1 undefined"));
}

TEST(ZeroRedundancyOptimizer, RefusesParametersThatAreNoLeavesOrThereTwice) {
  const at::Tensor a = at::ones({2}).requires_grad_();
  for (const std::string& message : Refusals({a, a}, {a, a}))
    EXPECT_THAT(message, HasSubstr("group 0 parameter 1 occurs twice"));
  for (const std::string& message : Refusals({a * 2}, {a * 2}))
    EXPECT_THAT(message, HasSubstr("group 0 parameter 0 is not a leaf"));
}

TEST(ZeroRedundancyOptimizer, PassesOnWhatTheOptimizerSaysOfItsOptions) {
  OnRanks(2, [](ProcessGroup& group) {
    const auto zero =
        ZeroRedundancyOptimizer<torch::optim::SGD>::Create({at::ones({2})}, torch::optim::SGDOptions(-1), &group);
    EXPECT_THAT(std::string(zero.status().message()), HasSubstr("Invalid learning rate: -1"));
  });
}

TEST(ZeroRedundancyOptimizer, RefusesParametersThatComeByOtherWays) {
  OnRanks(2, [](ProcessGroup& group) {
    const auto zero = MadeOver(group);
    zero->add_parameters({at::ones({2})});
    try {
      zero->step();
      ADD_FAILURE() << "step() took them";
    } catch (const StatusError& error) {
      EXPECT_EQ(error.status().code(), absl::StatusCode::kFailedPrecondition);
    }
  });
}

TEST(ZeroRedundancyOptimizer, ThrowsTheErrorOfABroadcast) {
  const std::vector<absl::Status> results = RunRanks(2, [](ProcessGroup& group) -> absl::Status {
    const auto zero = MadeOver(group);
    if (group.rank() == 1) return absl::InternalError("rank 1 is done");
    zero->step();
    return absl::OkStatus();
  });
  EXPECT_THAT(std::string(results[0].message()), HasSubstr("ZeroRedundancyOptimizer::step"));
  EXPECT_THAT(std::string(results[0].message()), HasSubstr("rank 1 is done"));
}

TEST(ZeroRedundancyOptimizer, RefusesToConsolidateOnARankThatIsNone) {
  OnRanks(2, [](ProcessGroup& group) {
    const absl::Status status = MadeOver(group)->ConsolidateStateDict(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("to is 2, expected a rank below 2"));
  });
}

}  // namespace
}  // namespace lockstep::ddp::zero

namespace lockstep::ddp::zero::internal {
namespace {

TEST(AssignOwners, GivesTheLargestFirstToTheRankWithTheLeast) {
  // 9 -> 0, 7 -> 1, 6 -> 2, 5 -> 2 (6), 4 -> 1 (7), 1 -> 0 (9)
  EXPECT_THAT(AssignOwners({{4, 9, 1, 7, 6, 5}}, 3), ElementsAre(ElementsAre(1, 0, 0, 1, 2, 2)));
}

TEST(AssignOwners, KeepsTheOrderOfEquals) {
  EXPECT_THAT(AssignOwners({{2, 2, 2, 2, 2}}, 2), ElementsAre(ElementsAre(0, 1, 0, 1, 0)));
}

TEST(AssignOwners, GoesOnWithTheLoadsOfTheGroupsBefore) {
  EXPECT_THAT(AssignOwners({{10}, {3, 4}, {}, {8}}, 2),
              ElementsAre(ElementsAre(0), ElementsAre(1, 1), ElementsAre(), ElementsAre(1)));
}

TEST(AssignOwners, LeavesRanksWithoutParametersWhereThereAreFew) {
  EXPECT_THAT(AssignOwners({{5}}, 3), ElementsAre(ElementsAre(0)));
}

}  // namespace
}  // namespace lockstep::ddp::zero::internal
