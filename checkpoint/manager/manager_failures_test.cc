// Saves that fail on one rank, and unexpected files.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::checkpoint {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Value Weights(double fill) { return Value::Dict({{"w", at::full({1000}, fill)}}); }

std::unique_ptr<Manager> Make(const std::string& directory, ProcessGroup* group, bool asynchronous = false,
                              std::vector<std::string>* warnings = nullptr) {
  ManagerOptions options;
  options.asynchronous = asynchronous;
  if (warnings) options.on_warning = [warnings](const std::string& line) { warnings->push_back(line); };
  auto manager = Manager::Create(directory, group, options);
  EXPECT_TRUE(manager.ok()) << manager.status();
  return *std::move(manager);
}

// The error that all of `results` equal.
absl::Status Same(const std::vector<absl::Status>& results) {
  for (const absl::Status& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Save and Wait.
absl::Status SaveNow(Manager& manager, int64_t step, const Value& value, const SaveArguments& arguments = {}) {
  absl::Status status = manager.Save(step, value, arguments);
  status.Update(manager.Wait());
  return status;
}

class ManagerFailuresTest : public ::testing::TestWithParam<bool> {
 protected:
  // Saves step 1 on two ranks, calls `harm` on rank 0 and saves step 2. Returns the results of the second save.
  std::vector<absl::Status> SaveAfter(const std::string& directory, const std::function<void()>& harm,
                                      const Value& value = Weights(2)) {
    return RunRanks(2, [&](ProcessGroup& group) {
      const auto manager = Make(directory, &group, GetParam());
      LOCKSTEP_RETURN_IF_ERROR(SaveNow(*manager, 1, Weights(1)));
      if (group.rank() == 0) harm();
      const absl::Status status = SaveNow(*manager, 2, value);
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
      return status;
    });
  }

  // After a failed save the directory has step 1 and nothing of step 2.
  void ExpectOnlyTheFirst(const std::string& below = "") {
    EXPECT_THAT(folder_.Names(below), ElementsAre("step_00000001.pt"));
    const auto loaded = Make(folder_.path() + "/" + below, nullptr)->LoadLatest();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(Identical((*loaded)->value, Weights(1)));
  }

  const testing::Folder folder_;
};

INSTANTIATE_TEST_SUITE_P(Saves, ManagerFailuresTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Asynchronous" : "Synchronous"; });

TEST_P(ManagerFailuresTest, ADirectoryRemovedMeanwhileIsEveryRanksError) {
  const std::string directory = folder_.path() + "/gone";
  const absl::Status status = Same(SaveAfter(directory, [&] { std::filesystem::remove_all(directory); }));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 \\(host .*, pid [0-9]+\\): .*/gone/step_00000002.pt: .*"
                                            "No such file or directory"));
}

TEST_P(ManagerFailuresTest, WhatStandsInTheWayIsEveryRanksError) {
  const std::string path = folder_.path() + "/step_00000002.pt";
  const absl::Status status = Same(SaveAfter(folder_.path(), [&] { mkdir(path.c_str(), 0777); }));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(path + ": is a directory"));
  std::filesystem::remove(path);
  ExpectOnlyTheFirst();
}

TEST_P(ManagerFailuresTest, AFullDiskIsEveryRanksError) {
  std::string skipped;
  // After unshare() only this thread and its children see its mounts.
  std::thread([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      skipped = std::strerror(errno);
      return;
    }
    const Value large = Value::Dict({{"w", at::full({1 << 20}, 2.0)}});
    const absl::Status status = Same(SaveAfter(
        folder_.path(), [] {}, large));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(Message(status), MatchesRegex("rank 0 .*/step_00000002.pt: .*No space left on device"));
    ExpectOnlyTheFirst();
    ASSERT_EQ(mount("none", folder_.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
    const absl::Status read_only = Same(RunRanks(2, [&](ProcessGroup& group) {
      const auto manager = Make(folder_.path(), &group, GetParam());
      return SaveNow(*manager, 2, Weights(2));
    }));
    EXPECT_THAT(Message(read_only), MatchesRegex("rank 0 .*/step_00000002.pt: .*Read-only file system"));
    ExpectOnlyTheFirst();
  }).join();
  if (!skipped.empty()) GTEST_SKIP() << "no file system may be mounted here: " << skipped;
}

TEST_P(ManagerFailuresTest, AForbiddenDirectoryIsEveryRanksError) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may become somebody else";
  ASSERT_EQ(chmod(folder_.path().c_str(), 0700), 0);
  // Applies to the calling thread, rank 0, and to the threads that it starts.
  const absl::Status status = Same(SaveAfter(folder_.path(), [] { setfsuid(65534); }));
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .*/step_00000002.pt: .*Permission denied"));
  ExpectOnlyTheFirst();
}

TEST_P(ManagerFailuresTest, AStateThatCannotBeSavedIsEveryRanksErrorBeforeAnythingIsWritten) {
  const absl::Status status = Same(RunRanks(3, [&](ProcessGroup& group) {
    const auto manager = Make(folder_.path(), &group, GetParam());
    SaveArguments arguments;
    if (group.rank() > 0) arguments.rank_state = at::Tensor();
    const absl::Status bad = manager->Save(7, Weights(1), arguments);
    EXPECT_EQ(SaveNow(*manager, 1, Weights(1)), absl::OkStatus()) << "the Manager goes on";
    return bad;
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), MatchesRegex("rank 1 \\(.*\\): step 7: rank_state or metrics: \\[\"state\"\\]: an "
                                            "undefined tensor; and 1 more"));
  ExpectOnlyTheFirst();
}

TEST_P(ManagerFailuresTest, AValueThatCannotBeSavedIsEveryRanksError) {
  const auto error = [&](int64_t step, const Value& value) {
    return Message(Same(RunRanks(2, [&](ProcessGroup& group) {
      const auto manager = Make(folder_.path(), &group, GetParam());
      return SaveNow(*manager, step, group.rank() == 0 ? value : Weights(1));
    })));
  };
  EXPECT_THAT(error(2, Value::Dict({{"bad", at::Tensor()}})), HasSubstr("step_00000002.pt: [\"bad\"]: an undefined"));
  EXPECT_THAT(error(2, 3), HasSubstr("step 2: expected a dict, found int"));
  EXPECT_THAT(error(2, Value::Dict({{"lockstep", 1}})), HasSubstr("the key \"lockstep\" is the Manager's own"));
  EXPECT_THAT(error(-1, Weights(1)), HasSubstr("expected a step of 0 or more, found -1; and 1 more"));
  EXPECT_THAT(folder_.Names(), ElementsAre());
}

TEST_P(ManagerFailuresTest, RanksThatSaveDifferentStepsAreTold) {
  const absl::Status status = Same(RunRanks(3, [&](ProcessGroup& group) {
    return SaveNow(*Make(folder_.path(), &group, GetParam()), group.rank() < 2 ? 7 : 8, Weights(1));
  }));
  EXPECT_EQ(status, absl::InvalidArgumentError("the ranks save different steps: rank 0 saves 7, rank 2 8"));
  EXPECT_THAT(folder_.Names(), ElementsAre());
}

TEST_P(ManagerFailuresTest, RanksThatCallDifferentFunctionsAreTold) {
  const absl::Status status = Same(RunRanks(2, [&](ProcessGroup& group) {
    const auto manager = Make(folder_.path(), &group, GetParam());
    const absl::Status bad = group.rank() == 0 ? manager->Save(1, Weights(1)) : manager->Steps().status();
    EXPECT_EQ(SaveNow(*manager, 1, Weights(1)), absl::OkStatus()) << "the Manager goes on";
    return bad;
  }));
  EXPECT_EQ(status, absl::InvalidArgumentError(
                        "the ranks are in different calls: rank 0 in Manager::Save, rank 1 in Manager::Steps"));
}

TEST_P(ManagerFailuresTest, ADamagedLatestIsPassedOverByAllRanks) {
  using Harm = std::pair<std::string, std::function<std::string(std::string)>>;
  for (const Harm& harm :
       std::vector<Harm>{{"a flipped bit", [](std::string all) { return all[all.size() / 2] ^= 1, all; }},
                         {"cut in half", [](const std::string& all) { return all.substr(0, all.size() / 2); }},
                         {"empty", [](const std::string&) { return std::string(); }},
                         {"not a checkpoint", [](const std::string&) { return std::string(5000, 'x'); }}}) {
    SCOPED_TRACE(harm.first);
    EXPECT_EQ(RunRanksOk(2,
                         [&](ProcessGroup& group) {
                           std::vector<std::string> warnings;
                           const auto manager = Make(folder_.path() + "/", &group, GetParam(), &warnings);
                           for (const int step : {1, 2})
                             EXPECT_EQ(SaveNow(*manager, step, Weights(step)), absl::OkStatus());
                           if (group.rank() == 0) {
                             folder_.Write("step_00000002.pt", harm.second(folder_.Read("step_00000002.pt")));
                           }
                           EXPECT_EQ(group.Barrier(), absl::OkStatus());
                           const auto restored = manager->LoadLatest();
                           ASSERT_TRUE(restored.ok()) << restored.status();
                           EXPECT_EQ((*restored)->info.step, 1);
                           EXPECT_TRUE(Identical((*restored)->value, Weights(1)));
                           EXPECT_EQ(warnings.size(), group.rank() == 0 ? 1 : 0);
                           EXPECT_THAT(warnings,
                                       Each(MatchesRegex("the newest checkpoint is damaged, so step 1 is "
                                                         "used: rank 0 \\(.*\\): .*[^/]/step_00000002.pt: .*")));
                         }),
              absl::OkStatus());
  }
}

TEST_P(ManagerFailuresTest, AFileUnderAnotherStepsNameIsPassedOver) {
  const auto manager = Make(folder_.path(), nullptr, GetParam());
  ASSERT_EQ(SaveNow(*manager, 1, Weights(1)), absl::OkStatus());
  folder_.Write("step_00000009.pt", folder_.Read("step_00000001.pt"));
  for (const char* name : {"/step_00000010.pt", "/step_00000011.pt"})
    ASSERT_EQ(Save(folder_.path() + name, Weights(5)), absl::OkStatus());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ((*manager->Latest())->step, 1);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      MatchesRegex("warning: the newest 2 checkpoints are damaged, so step 1 is used: /.*_00000011.pt: [^\n]*\n"));
}

TEST_P(ManagerFailuresTest, WithNothingWholeThereIsAnErrorRatherThanAFreshStart) {
  const absl::Status status = Same(RunRanks(2, [&](ProcessGroup& group) {
    const auto manager = Make(folder_.path(), &group, GetParam());
    LOCKSTEP_RETURN_IF_ERROR(SaveNow(*manager, 1, Weights(1)));
    if (group.rank() == 0) folder_.Write("step_00000001.pt", "x");
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    return manager->Latest().status();
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), MatchesRegex("none of 1 checkpoints is intact: remove them to begin anew; rank 0 .*"
                                            "/step_00000001.pt: .*"));
}

TEST_P(ManagerFailuresTest, ARankThatCannotLoadIsNamedOnAllRanks) {
  const absl::Status status = Same(RunRanks(3, [&](ProcessGroup& group) {
    const auto manager = Make(folder_.path(), &group, GetParam());
    LOCKSTEP_RETURN_IF_ERROR(SaveNow(*manager, 1, Weights(1)));
    return manager->LoadLatest({.map_location = group.rank() == 1 ? "cuda:7" : "cpu"}).status();
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), MatchesRegex("rank 1 \\(.*\\): .*/step_00000001.pt: .*cuda:7.*"));
}

TEST_P(ManagerFailuresTest, WhatAKilledSaveLeftIsRemovedAndNothingElse) {
  const std::string temporary = ".lockstep-0123456789abcdef";
  folder_.Write(".step_00000003.pt" + temporary, "half");
  folder_.Write(".model_best.pt" + temporary, "half");
  const std::vector<std::string> others = {".mine.pt" + temporary, ".step_00000003.pt.lockstep-notes", "model.pt",
                                           "step_00000001.pt.bak", "step_1.pt"};
  for (const std::string& name : others) folder_.Write(name, "mine");
  const auto manager = Make(folder_.path(), nullptr, GetParam());
  EXPECT_THAT(folder_.Names(), ::testing::ElementsAreArray(others));
  for (int step = 1; step < 9; ++step) EXPECT_EQ(SaveNow(*manager, step, Weights(step)), absl::OkStatus());
  for (const std::string& name : others) EXPECT_EQ(folder_.Read(name), "mine");
}

TEST(ManagerCreate, OptionsThatDifferBetweenRanksAreTold) {
  const testing::Folder folder;
  const absl::Status status = Same(RunRanks(3, [&](ProcessGroup& group) {
    ManagerOptions options;
    options.asynchronous = group.rank() == 2;
    return Manager::Create(folder.path(), &group, options).status();
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), MatchesRegex("the ranks' options differ: rank 0 has .*asynchronous 0; rank 2 has "
                                            ".*asynchronous 1"));
}

TEST(ManagerCreate, ADirectoryThatCannotBeMadeIsEveryRanksError) {
  const testing::Folder folder;
  folder.Write("file", "");
  const absl::Status status = Same(
      RunRanks(2, [&](ProcessGroup& group) { return Manager::Create(folder.path() + "/file/runs", &group).status(); }));
  EXPECT_THAT(Message(status), MatchesRegex("rank 0 .*/file/runs: make the directory: Not a directory"));
}

TEST(ManagerCreate, RefusesBadOptions) {
  EXPECT_EQ(Manager::Create("x", nullptr, {.keep_last = -1}).status(),
            absl::InvalidArgumentError("expected keep_last and keep_every of 0 or more, found -1 and 0"));
  EXPECT_EQ(Manager::Create("", nullptr).status(), absl::InvalidArgumentError("the directory's name is empty"));
}

TEST(AsynchronousManager, AFailedSaveIsToldByTheNextOneWhichIsBegunAllTheSame) {
  const testing::Folder folder;
  const std::string directory = folder.path() + "/runs";
  const absl::Status status = Same(RunRanks(2, [&](ProcessGroup& group) {
    const auto manager = Make(directory, &group, /*asynchronous=*/true);
    if (group.rank() == 0) mkdir((directory + "/step_00000001.pt").c_str(), 0777);
    LOCKSTEP_RETURN_IF_ERROR(manager->Save(1, Weights(1)));
    const absl::Status told = manager->Save(2, Weights(2));
    EXPECT_EQ(manager->Wait(), absl::OkStatus()) << "of the second save";
    EXPECT_EQ((*manager->LoadLatest())->info.step, 2);
    return told;
  }));
  EXPECT_THAT(Message(status), HasSubstr("/step_00000001.pt: is a directory"));
}

TEST(AsynchronousManager, TheDestructorFinishesTheSave) {
  const testing::Folder folder;
  EXPECT_EQ(Make(folder.path(), nullptr, /*asynchronous=*/true)->Save(1, Weights(1)), absl::OkStatus());
  EXPECT_THAT(folder.Names(), ElementsAre("step_00000001.pt"));
}

}  // namespace
}  // namespace lockstep::checkpoint
