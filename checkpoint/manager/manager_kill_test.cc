// Ranks that are killed while they save. They are processes, and the test's process never calls LibTorch.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::checkpoint {
namespace {

using comm::InitOptions;
using comm::InitProcessGroup;
using comm::testing::Process;
using comm::testing::RankProcesses;
using comm::testing::SayStatus;
using ::testing::HasSubstr;

constexpr int64_t kElements = 4 << 20;  // a step's weights; each equals the step

InitOptions Options() {
  InitOptions options;
  options.backend = "shm";
  options.timeout = absl::Seconds(20);
  return options;
}

Value Weights(int64_t step) { return Value::Dict({{"w", at::full({kElements}, static_cast<double>(step))}}); }

absl::Status CheckWeights(const Restored& restored) {
  if (Identical(restored.value, Weights(restored.info.step))) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("step ", restored.info.step, " has other weights"));
}

bool IsHidden(const std::string& name) { return absl::StartsWith(name, "."); }

// A run: continues from the latest step, prints that, and saves step after step without end.
absl::Status Train(const InitOptions& options, const Process::Say& say, const testing::Folder& folder,
                   const ManagerOptions& manager_options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, InitProcessGroup(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto manager, Manager::Create(folder.path(), group.get(), manager_options));
  const auto names = folder.Names();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<Restored> latest, manager->LoadLatest());
  if (latest) LOCKSTEP_RETURN_IF_ERROR(CheckWeights(*latest));
  int64_t step = latest ? latest->info.step : 0;
  say(absl::StrCat("hidden ", std::count_if(names.begin(), names.end(), IsHidden)));
  say(absl::StrCat("from ", step));
  for (;;) {
    ++step;
    LOCKSTEP_RETURN_IF_ERROR(manager->Save(step, Weights(step)));
    if (manager_options.asynchronous) LOCKSTEP_RETURN_IF_ERROR(manager->Wait());
    say(absl::StrCat("saved ", step));
  }
}

int64_t NumberAfter(const std::string& prefix, Process& process) {
  const auto line = process.AwaitLine(prefix);
  int64_t number = -1;
  EXPECT_TRUE(line && absl::SimpleAtoi(line->text.substr(prefix.size()), &number)) << prefix;
  return number;
}

class ManagerKillTest : public ::testing::TestWithParam<bool> {
 protected:
  RankProcesses Start() {
    return RankProcesses(2, Options(), [&](const InitOptions& options, const Process::Say& say) {
      ManagerOptions manager_options;
      manager_options.asynchronous = GetParam();
      const absl::Status status = Train(options, say, folder_, manager_options);
      SayStatus(say, status);
      return 1;
    });
  }

  const testing::Folder folder_;
};

INSTANTIATE_TEST_SUITE_P(Saves, ManagerKillTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Asynchronous" : "Synchronous"; });

TEST_P(ManagerKillTest, ARunKilledInASaveGoesOnFromASaveThatWasComplete) {
  std::mt19937 random(1);
  int64_t saved = 0;
  int in_mid_save = 0;
  for (int run = 0; run < 8; ++run) {
    RankProcesses ranks = Start();
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(NumberAfter("hidden ", ranks[rank]), 0) << "what the killed save left";
      const int64_t from = NumberAfter("from ", ranks[rank]);
      EXPECT_GE(from, saved) << "run " << run;
      EXPECT_LE(from, saved + 100);
    }
    const absl::Duration before = Process::Now();
    saved = NumberAfter("saved ", ranks[0]);
    // At any moment of the next save.
    absl::SleepFor((Process::Now() - before) * std::uniform_real_distribution<>(0.1, 0.9)(random));
    ranks.Signal(0, run % 2 == 0 ? SIGTERM : SIGKILL);
    ranks[0].Wait();
    const auto names = folder_.Names();
    in_mid_save += std::any_of(names.begin(), names.end(), IsHidden);
  }
  EXPECT_GT(in_mid_save, 0) << "no kill hit a save: the test tests nothing";
}

TEST_P(ManagerKillTest, TheOthersAreToldWhichRankDied) {
  for (const int dead : {0, 1}) {
    RankProcesses ranks = Start();
    ranks.AwaitAll("saved ");
    ranks.Signal(dead, SIGKILL);
    const auto status = ranks.AwaitStatus(1 - dead);
    ASSERT_TRUE(status);
    EXPECT_THAT(status->text, HasSubstr(absl::StrCat(ranks.name(dead), " died: signal 9 (Killed)")));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
