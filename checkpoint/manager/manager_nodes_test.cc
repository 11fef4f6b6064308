// Writers::kEachNode: ranks as processes on two hosts, each with its own directory.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/manager/manager.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::checkpoint {
namespace {

using comm::InitOptions;
using comm::InitProcessGroup;
using comm::ProcessGroup;
using comm::testing::NetworkHosts;
using comm::testing::Process;
using comm::testing::RankProcesses;
using comm::testing::SayStatus;
using ::testing::ElementsAre;
using ::testing::MatchesRegex;

Value Weights(int64_t step) { return Value::Dict({{"w", at::full({100}, static_cast<double>(step))}}); }

std::string HostFolder(int rank) { return absl::StrCat("host", rank / 2); }

class ManagerNodesTest : public ::testing::Test {
 protected:
  using Body = std::function<absl::Status(Manager& manager, ProcessGroup& group, const Process::Say& say)>;

  // Runs `body` on four ranks, two on each host. Returns the output of each rank's SayStatus.
  std::vector<std::string> Run(const Body& body) {
    InitOptions options;
    options.backend = "gloo";
    options.timeout = absl::Seconds(20);
    RankProcesses ranks(
        4, options,
        [&](const InitOptions& rank_options, const Process::Say& say) {
          const auto group = InitProcessGroup(rank_options);
          SayStatus(say, group.ok() ? RunRank(**group, body, say) : group.status());
          return 0;
        },
        hosts_->get());
    std::vector<std::string> said;
    for (int rank = 0; rank < 4; ++rank) {
      const auto status = ranks.AwaitStatus(rank);
      said.push_back(status ? status->text : "nothing");
    }
    return said;
  }

  absl::Status RunRank(ProcessGroup& group, const Body& body, const Process::Say& say) {
    ManagerOptions options;
    options.writers = Writers::kEachNode;
    options.best_metric = "accuracy";
    LOCKSTEP_ASSIGN_OR_RETURN(const auto manager,
                              Manager::Create(folder_.path() + "/" + HostFolder(group.rank()), &group, options));
    LOCKSTEP_RETURN_IF_ERROR(body(*manager, group, say));
    return group.Barrier();
  }

  const absl::StatusOr<std::unique_ptr<NetworkHosts>> hosts_ = NetworkHosts::Create(2);
  const testing::Folder folder_;
};

absl::Status SaveThree(Manager& manager, ProcessGroup& group) {
  for (const int64_t step : {1, 2, 3}) {
    LOCKSTEP_RETURN_IF_ERROR(
        manager.Save(step, Weights(step), {.metrics = {{"accuracy", 2.0}}, .rank_state = group.rank()}));
  }
  return absl::OkStatus();
}

absl::Status Expect(bool condition, absl::string_view what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

TEST_F(ManagerNodesTest, EachHostHasAWholeCopyWithAllRanksStates) {
  if (!hosts_.ok()) GTEST_SKIP() << hosts_.status();
  const auto said = Run([](Manager& manager, ProcessGroup& group, const Process::Say&) {
    LOCKSTEP_RETURN_IF_ERROR(SaveThree(manager, group));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto latest, manager.LoadLatest());
    LOCKSTEP_RETURN_IF_ERROR(Expect(latest->info.step == 3, "latest"));
    LOCKSTEP_RETURN_IF_ERROR(Expect(Identical(latest->value, Weights(3)), "weights"));
    LOCKSTEP_RETURN_IF_ERROR(Expect(Identical(latest->rank_state, group.rank()), "this rank's state"));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto best, manager.Best());
    return Expect(best->step == 1, "best");
  });
  EXPECT_THAT(said, ElementsAre("OK", "OK", "OK", "OK"));
  for (const char* host : {"host0", "host1"}) {
    EXPECT_THAT(folder_.Names(host),
                ElementsAre("model_best.pt", "step_00000001.pt", "step_00000002.pt", "step_00000003.pt"));
  }
}

TEST_F(ManagerNodesTest, TheLatestIsWholeOnEveryHost) {
  if (!hosts_.ok()) GTEST_SKIP() << hosts_.status();
  const auto said = Run([&](Manager& manager, ProcessGroup& group, const Process::Say&) {
    LOCKSTEP_RETURN_IF_ERROR(SaveThree(manager, group));
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 0) {
      std::filesystem::remove(folder_.path() + "/host0/step_00000003.pt");
      folder_.Write("host1/step_00000002.pt", "damaged");
    }
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    LOCKSTEP_ASSIGN_OR_RETURN(const auto latest, manager.LoadLatest());
    return Expect(latest->info.step == 1, "latest");
  });
  EXPECT_THAT(said, ElementsAre("OK", "OK", "OK", "OK"));
}

TEST_F(ManagerNodesTest, AHostThatCannotWriteIsNamedOnAllRanks) {
  if (!hosts_.ok()) GTEST_SKIP() << hosts_.status();
  const auto said = Run([&](Manager& manager, ProcessGroup& group, const Process::Say&) {
    if (group.rank() == 2) std::filesystem::remove_all(folder_.path() + "/host1");
    return manager.Save(1, Weights(1));
  });
  for (const std::string& status : said) {
    EXPECT_EQ(status, said[0]);
    EXPECT_THAT(status, MatchesRegex("NOT_FOUND: rank 2 \\(.*\\): .*/host1/step_00000001.pt: .*"));
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
