#include "lockstep/checkpoint/manager/step_directory.h"

#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing/folder.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
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
  // By a relative name: somebody else may not pass through the directories above.
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto back = absl::MakeCleanup([&] { std::filesystem::current_path(before); });
  ASSERT_EQ(chmod(".", 0777), 0);
  const StepDirectory directory(".");
  ASSERT_EQ(SaveStep(directory, 1), absl::OkStatus());
  // The kernel refuses links to files of others.
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

}  // namespace
}  // namespace lockstep::checkpoint
