#include "lockstep/checkpoint/manager/manager.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

// The value that `rank` saves as `step`.
Value Weights(double fill) { return Value::Dict({{"state_dict", Value::OrderedDict({{"w", at::full({5}, fill)}})}}); }

Value StateOf(int rank) { return Value::Dict({{"rank", rank}, {"rng", at::full({3}, rank)}}); }

std::unique_ptr<Manager> Make(const std::string& directory, ProcessGroup* group, const ManagerOptions& options = {}) {
  auto manager = Manager::Create(directory, group, options);
  EXPECT_TRUE(manager.ok()) << manager.status();
  return *std::move(manager);
}

class ManagerTest : public ::testing::TestWithParam<bool> {
 protected:
  // The parameter: whether saves are asynchronous.
  ManagerOptions Options() const {
    ManagerOptions options;
    options.asynchronous = GetParam();
    return options;
  }

  const testing::Folder folder_;
  const std::string directory_ = folder_.path() + "/runs/7";
};

INSTANTIATE_TEST_SUITE_P(Saves, ManagerTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Asynchronous" : "Synchronous"; });

TEST_P(ManagerTest, TheLatestComesBackOnEveryRank) {
  const absl::Status status = RunRanksOk(3, [&](ProcessGroup& group) {
    const auto manager = Make(directory_, &group, Options());
    for (const int64_t step : {10, 20}) {
      SaveArguments arguments;
      arguments.metrics["loss"] = 1.0 / step;
      arguments.rank_state = StateOf(group.rank());
      EXPECT_EQ(manager->Save(step, Weights(step + group.rank()), arguments), absl::OkStatus());
    }
    EXPECT_EQ(manager->Wait(), absl::OkStatus());
    const auto restored = manager->LoadLatest();
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ((*restored)->info.step, 20);
    EXPECT_EQ((*restored)->info.path, directory_ + "/step_00000020.pt");
    EXPECT_EQ((*restored)->info.world_size, 3);
    EXPECT_THAT((*restored)->info.metrics, ElementsAre(Pair("loss", 0.05)));
    EXPECT_TRUE(Identical((*restored)->value, Weights(20))) << "rank 0's, without the Manager's own key";
    EXPECT_TRUE(Identical((*restored)->rank_state, StateOf(group.rank())));
    EXPECT_EQ((*restored)->rank_states.size(), 3);
  });
  EXPECT_EQ(status, absl::OkStatus());
}

TEST_P(ManagerTest, AnEmptyDirectoryHasNoLatestAndNoBest) {
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         const auto manager = Make(directory_, &group, Options());
                         EXPECT_FALSE(manager->Latest()->has_value());
                         EXPECT_FALSE(manager->Best()->has_value());
                         EXPECT_FALSE(manager->LoadLatest()->has_value());
                         EXPECT_EQ(manager->Wait(), absl::OkStatus());
                       }),
            absl::OkStatus());
}

TEST_P(ManagerTest, NoRankReturnsBeforeTheFileIsThere) {
  EXPECT_EQ(RunRanksOk(3,
                       [&](ProcessGroup& group) {
                         const auto manager = Make(directory_, &group, Options());
                         for (int step = 0; step < 10; ++step) {
                           EXPECT_EQ(manager->Save(step, Weights(step)), absl::OkStatus());
                           EXPECT_EQ(manager->Wait(), absl::OkStatus());
                           const auto loaded = Load(absl::StrCat(directory_, "/step_0000000", step, ".pt"));
                           EXPECT_TRUE(loaded.ok()) << loaded.status();
                         }
                       }),
            absl::OkStatus());
}

TEST_P(ManagerTest, OldFilesGoAndMilestonesAndTheBestStay) {
  ManagerOptions options = Options();
  options.keep_last = 2;
  options.keep_every = 40;
  options.best_metric = "accuracy";
  EXPECT_EQ(
      RunRanksOk(2,
                 [&](ProcessGroup& group) {
                   const auto manager = Make(directory_, &group, options);
                   for (const auto& [step, accuracy] : std::vector<std::pair<int, double>>{
                            {20, 0.5}, {30, 0.9}, {40, 0.7}, {50, std::nan("")}, {60, 0.9}, {70, 0.8}}) {
                     // Only rank 0's metrics count.
                     const double own = group.rank() == 0 ? accuracy : 100 + step;
                     EXPECT_EQ(manager->Save(step, Weights(step), {.metrics = {{"accuracy", own}}}), absl::OkStatus());
                   }
                   EXPECT_THAT(*manager->Steps(), ElementsAre(40, 60, 70));
                   const auto best = manager->Best();
                   ASSERT_TRUE(best.ok()) << best.status();
                   EXPECT_EQ((*best)->step, 30);
                   EXPECT_EQ((*best)->path, directory_ + "/model_best.pt");
                   EXPECT_TRUE(Identical(manager->Load(**best)->value, Weights(30)));
                 }),
      absl::OkStatus());
  EXPECT_THAT(folder_.Names("runs/7"),
              ElementsAre("model_best.pt", "step_00000040.pt", "step_00000060.pt", "step_00000070.pt"));
}

TEST_P(ManagerTest, TheBestIsRememberedByTheNextRun) {
  ManagerOptions options = Options();
  options.keep_last = 1;
  options.best_metric = "loss";
  options.best_is_highest = false;
  const std::vector<std::vector<double>> runs = {{3, 1, 2}, {1.5, 0.5, 0.75}};
  int step = 0;
  for (const std::vector<double>& losses : runs) {
    const auto manager = Make(directory_, nullptr, options);
    for (const double loss : losses) {
      ++step;
      EXPECT_EQ(manager->Save(step, Weights(step), {.metrics = {{"loss", loss}}}), absl::OkStatus());
      EXPECT_EQ(manager->Wait(), absl::OkStatus());
    }
    EXPECT_EQ((*manager->Best())->metrics.at("loss"), *std::min_element(losses.begin(), losses.end()));
  }
  EXPECT_EQ(LoadEntry(directory_ + "/model_best.pt", "lockstep")->Find("step")->int_value(), 5);
}

TEST_P(ManagerTest, ABestByAnotherMetricIsNoMeasure) {
  ManagerOptions options = Options();
  for (const auto& [metric, step] : std::vector<std::pair<std::string, int>>{{"loss", 1}, {"accuracy", 2}}) {
    options.best_metric = metric;
    const auto manager = Make(directory_, nullptr, options);
    const double accuracy = step == 1 ? std::nan("") : 0.5;
    ASSERT_EQ(manager->Save(step, Weights(step), {.metrics = {{"loss", 3}, {"accuracy", accuracy}}}), absl::OkStatus());
    EXPECT_EQ((*manager->Best())->step, step);
  }
}

TEST_P(ManagerTest, AnotherNumberOfRanksGetsAllStates) {
  EXPECT_EQ(RunRanksOk(4,
                       [&](ProcessGroup& group) {
                         const auto manager = Make(directory_, &group, Options());
                         EXPECT_EQ(manager->Save(1, Weights(1), {.rank_state = StateOf(group.rank())}),
                                   absl::OkStatus());
                         EXPECT_EQ(manager->Wait(), absl::OkStatus());
                       }),
            absl::OkStatus());
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         const auto restored = Make(directory_, &group, Options())->LoadLatest();
                         ASSERT_TRUE(restored.ok()) << restored.status();
                         EXPECT_TRUE((*restored)->rank_state.is_none());
                         EXPECT_EQ((*restored)->info.world_size, 4);
                         ASSERT_EQ((*restored)->rank_states.size(), 4);
                         for (int rank = 0; rank < 4; ++rank) {
                           EXPECT_TRUE(Identical((*restored)->rank_states[rank], StateOf(rank)));
                         }
                       }),
            absl::OkStatus());
}

TEST_P(ManagerTest, FilesThatAreIndependentOfRanksAreTheSameOnAnyNumberOfThem) {
  ManagerOptions options = Options();
  options.independent_of_ranks = true;
  std::vector<std::string> files;
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(RunRanksOk(ranks,
                         [&](ProcessGroup& group) {
                           const auto manager = Make(directory_, &group, options);
                           EXPECT_EQ(manager->Save(1, Weights(1), {.metrics = {{"loss", 2}}}), absl::OkStatus());
                           EXPECT_EQ(manager->Wait(), absl::OkStatus());
                           const auto restored = manager->LoadLatest();
                           ASSERT_TRUE(restored.ok()) << restored.status();
                           EXPECT_EQ((*restored)->info.world_size, 0);
                           EXPECT_THAT((*restored)->rank_states, IsEmpty());
                           EXPECT_THAT(manager->Save(2, Weights(1), {.rank_state = StateOf(group.rank())}).message(),
                                       HasSubstr("expected no rank_state with independent_of_ranks, found a "));
                         }),
              absl::OkStatus());
    std::ifstream file(directory_ + "/step_00000001.pt", std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_THAT(files[0], Not(IsEmpty()));
  EXPECT_TRUE(files[0] == files[1]);
}

TEST_P(ManagerTest, WhatChangesAfterSaveIsNotSaved) {
  const auto manager = Make(directory_, nullptr, Options());
  const Value value = Weights(1);
  const at::Tensor tensor = *GetTensor(value, {"state_dict", "w"});
  const at::Tensor state = at::ones({2});
  ASSERT_EQ(manager->Save(5, value, {.rank_state = state}), absl::OkStatus());
  tensor.fill_(-1);
  state.fill_(-1);
  const auto restored = manager->LoadLatest();
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(Identical((*restored)->value, Weights(1)));
  EXPECT_TRUE((*restored)->rank_state.tensor().equal(at::ones({2})));
}

TEST_P(ManagerTest, PreparingChangesNothing) {
  const auto manager = Make(directory_, nullptr, Options());
  for (int step = 1; step < 3; ++step) {
    EXPECT_EQ(manager->Prepare(Weights(7)), absl::OkStatus());
    EXPECT_EQ(manager->Save(step, Weights(step)), absl::OkStatus());
  }
  EXPECT_TRUE(Identical((*manager->LoadLatest())->value, Weights(2)));
}

TEST_P(ManagerTest, AStepSavedAgainReplacesItsFile) {
  const auto manager = Make(directory_, nullptr, Options());
  for (const double fill : {1, 2}) EXPECT_EQ(manager->Save(5, Weights(fill)), absl::OkStatus());
  EXPECT_TRUE(Identical((*manager->LoadLatest())->value, Weights(2)));
  EXPECT_THAT(*manager->Steps(), ElementsAre(5));
}

TEST_P(ManagerTest, KeepsOrderedDictsAndTheirAttributes) {
  Value value = Value::OrderedDict({{"b", 1}, {"a", at::arange(3)}});
  value.SetAttributes(Value::Dict({{"_metadata", Value::OrderedDict({{"", 1}})}}));
  const auto manager = Make(directory_, nullptr, Options());
  ASSERT_EQ(manager->Save(1, value), absl::OkStatus());
  EXPECT_TRUE(Identical((*manager->LoadLatest())->value, value));
  EXPECT_EQ(value.Find("lockstep"), nullptr) << "the caller's value is as it was";
}

TEST_P(ManagerTest, TheOtherRanksNeedNotBuildTheValue) {
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         const auto manager = Make(directory_, &group, Options());
                         const Value value = group.rank() == 0 ? Weights(3) : Value();
                         EXPECT_EQ(manager->Save(1, value), absl::OkStatus());
                         EXPECT_TRUE(Identical((*manager->LoadLatest())->value, Weights(3)));
                       }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::checkpoint
