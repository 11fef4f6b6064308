#include "lockstep/checkpoint/manager/step_directory.h"

#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing/folder.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

absl::Status SaveStep(const StepDirectory& directory, int64_t step) {
  CheckpointInfo info;
  info.step = step;
  info.metrics["loss"] = 0.5;
  info.world_size = 4;
  return Save(directory.PathOf(step), Value::Dict({{"a", step}, {kManagersKey, ManagersEntry(info, {1, 2})}}));
}

ino_t NumberOf(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TEST(StepDirectory, IsMadeWithThoseAboveIt) {
  const testing::Folder folder;
  const StepDirectory directory(folder.path() + "/a/b/c");
  EXPECT_EQ(directory.Prepare(), absl::OkStatus());
  EXPECT_EQ(directory.Prepare(), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() + "/a/b/c"));
}

TEST(StepDirectory, ListsStepsByTheirNumbers) {
  const testing::Folder folder;
  const StepDirectory directory(folder.path());
  for (const int64_t step : {int64_t{123456789}, int64_t{20}, int64_t{0}, int64_t{99999999}, INT64_MAX}) {
    ASSERT_EQ(SaveStep(directory, step), absl::OkStatus());
  }
  for (const char* name : {"step_20.pt", "step_-0000001.pt", "step_00000021.pt.bak", "step_0000002a.pt",
                           "step_99999999999999999999.pt", "xstep_00000022.pt", "step_.pt", "step_+0000023.pt"}) {
    folder.Write(name, "");
  }
  EXPECT_THAT(*directory.Steps(), ElementsAre(0, 20, 99999999, 123456789, INT64_MAX));
}

TEST(StepDirectory, ReadsWhatAFileSaysOfItself) {
  const testing::Folder folder;
  const StepDirectory directory(folder.path());
  ASSERT_EQ(SaveStep(directory, 7), absl::OkStatus());
  const auto info = directory.Read(directory.PathOf(7), /*verify=*/true);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->step, 7);
  EXPECT_EQ(info->path, folder.path() + "/step_00000007.pt");
  EXPECT_EQ(info->world_size, 4);
  EXPECT_THAT(info->metrics, ElementsAre(Pair("loss", 0.5)));
}

TEST(StepDirectory, RefusesFilesOfSomebodyElse) {
  const testing::Folder folder;
  const StepDirectory directory(folder.path());
  const std::string path = folder.path() + "/other.pt";
  ASSERT_EQ(Save(path, Value::Dict({{"lockstep", Value::Dict({{"step", "seven"}})}})), absl::OkStatus());
  EXPECT_EQ(directory.Read(path, true).status(),
            absl::InvalidArgumentError(path + ": [\"lockstep\"]: [\"step\"]: expected int, found str \"seven\""));
  ASSERT_EQ(Save(path, Value::Dict({{"lockstep", 3}})), absl::OkStatus());
  EXPECT_EQ(directory.Read(path, true).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StepDirectory, TheBestIsASecondNameOfItsFile) {
  const testing::Folder folder;
  const StepDirectory directory(folder.path());
  for (const int64_t step : {1, 2}) {
    ASSERT_EQ(SaveStep(directory, step), absl::OkStatus());
    ASSERT_EQ(directory.SetBest(step, /*sync=*/true), absl::OkStatus());
    EXPECT_EQ(NumberOf(directory.BestPath()), NumberOf(directory.PathOf(step)));
  }
  ASSERT_EQ(directory.SetBest(2, true), absl::OkStatus()) << "it is already";
  EXPECT_THAT(folder.Names(), ElementsAre("model_best.pt", "step_00000001.pt", "step_00000002.pt"));
}

TEST(StepDirectory, TheBestIsACopyWhereASecondNameIsRefused) {
  int protected_links = 0;
  std::ifstream("/proc/sys/fs/protected_hardlinks") >> protected_links;
  if (geteuid() != 0 || protected_links == 0) GTEST_SKIP() << "links are refused to nobody here";
  const testing::Folder folder;
  // A relative name: the other user cannot access the parent directories.
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto back = absl::MakeCleanup([&] { std::filesystem::current_path(before); });
  ASSERT_EQ(chmod(".", 0777), 0);
  const StepDirectory directory(".");
  ASSERT_EQ(SaveStep(directory, 1), absl::OkStatus());
  // The kernel refuses links to files of other users.
  setfsuid(65534);
  const absl::Status status = directory.SetBest(1, /*sync=*/true);
  setfsuid(0);
  ASSERT_EQ(status, absl::OkStatus());
  EXPECT_NE(NumberOf(directory.BestPath()), NumberOf(directory.PathOf(1)));
  EXPECT_TRUE(folder.Read("model_best.pt") == folder.Read("step_00000001.pt"));
}

TEST(StepDirectory, AFailedBestLeavesTheOneBefore) {
  const testing::Folder folder;
  const StepDirectory directory(folder.path());
  ASSERT_EQ(SaveStep(directory, 1), absl::OkStatus());
  ASSERT_EQ(directory.SetBest(1, true), absl::OkStatus());
  const absl::Status status = directory.SetBest(2, true);
  EXPECT_EQ(status, absl::NotFoundError(directory.BestPath() + ": " + directory.PathOf(2) +
                                        ": open: No such file or directory"));
  EXPECT_EQ(directory.Read(directory.BestPath(), true)->step, 1);
  EXPECT_THAT(folder.Names(), ElementsAre("model_best.pt", "step_00000001.pt"));
}

TEST(Retention, KeepsTheHighestSteps) {
  EXPECT_THAT(StepsToRemove({10, 20, 30, 40}, 40, {.keep_last = 2}), ElementsAre(10, 20));
  EXPECT_THAT(StepsToRemove({10, 20}, 20, {.keep_last = 2}), IsEmpty());
  EXPECT_THAT(StepsToRemove({}, 20, {.keep_last = 2}), IsEmpty());
}

TEST(Retention, KeepsMilestones) {
  EXPECT_THAT(StepsToRemove({0, 10, 15, 20, 25, 30}, 30, {.keep_last = 1, .keep_every = 10}), ElementsAre(15, 25));
}

TEST(Retention, KeepsAllWhereItIsToldTo) {
  EXPECT_THAT(StepsToRemove({1, 2, 3, 4}, 4, {.keep_last = 0}), IsEmpty());
  EXPECT_THAT(StepsToRemove({1, 2, 3, 4}, 4, {.keep_last = 0, .keep_every = 3}), IsEmpty());
}

TEST(Retention, KeepsWhatWasJustSavedBelowOthers) {
  // Later steps may be damaged, and training then continued from an earlier one.
  EXPECT_THAT(StepsToRemove({100, 150, 300}, 150, {.keep_last = 1}), ElementsAre(100));
}

// The definition, applied to each step separately.
bool Kept(int64_t step, const std::set<int64_t>& steps, int64_t saved, const Retention& retention) {
  if (retention.keep_last == 0 || step == saved) return true;
  if (retention.keep_every > 0 && step % retention.keep_every == 0) return true;
  const int64_t above = std::count_if(steps.begin(), steps.end(), [&](int64_t other) { return other > step; });
  return above < retention.keep_last;
}

TEST(Retention, AgreesWithItsDefinitionOnRandomSaves) {
  std::mt19937 random(1);
  for (int run = 0; run < 200; ++run) {
    const Retention retention{static_cast<int>(random() % 5), static_cast<int64_t>(random() % 4) * 5};
    std::set<int64_t> steps;
    for (int save = 0; save < 30; ++save) {
      const int64_t saved = random() % 60;
      steps.insert(saved);
      std::vector<int64_t> expected;
      for (const int64_t step : steps) {
        if (!Kept(step, steps, saved, retention)) expected.push_back(step);
      }
      const auto removed = StepsToRemove({steps.begin(), steps.end()}, saved, retention);
      ASSERT_EQ(removed, expected) << "run " << run << ", save " << save;
      for (const int64_t step : removed) steps.erase(step);
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
