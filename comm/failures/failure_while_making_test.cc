// Ranks that die, or never come, while InitProcessGroup() makes the group.

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/failures/backends.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;
using testing::Process;
using testing::SayStatus;

constexpr absl::Duration kTimeout = absl::Seconds(3);

// What InitProcessGroup() returns on each rank, the victim of which ends before it calls it.
int Make(const InitOptions& options, const Process::Say& say) {
  say("making");
  SayStatus(say, InitProcessGroup(options).status());
  return 0;
}

InitOptions Options(const std::string& backend) {
  InitOptions options;
  options.backend = backend;
  options.timeout = kTimeout;
  options.debug = Debug::kOff;
  return options;
}

TEST(GroupIsMade, WithoutARankThatDiedBeforeItCameNamingItByTheDeadline) {
  // The groups wait for their deadlines at the same time.
  std::vector<std::unique_ptr<Ranks>> groups;
  for (const std::string& backend : BackendsUnderTest()) {
    groups.push_back(
        std::make_unique<Ranks>(3, Options(backend), [](const InitOptions& options, const Process::Say& say) {
          return options.rank == 1 ? 4 : Make(options, say);
        }));
  }
  for (const auto& ranks : groups) {
    for (const int rank : {0, 2}) {
      const auto making = (*ranks)[rank].AwaitLine("making"), status = ranks->AwaitStatus(rank);
      ASSERT_TRUE(making && status);
      EXPECT_EQ(status->text, absl::StrCat("DEADLINE_EXCEEDED: rank ", rank, " of 3: these ranks have not joined: 1"));
      EXPECT_LT(status->time - making->time, kTimeout + absl::Seconds(1));
    }
  }
}

// A backend that is being made on all ranks when a rank dies.
std::string BackendThatKills(int victim) { return absl::StrCat(BackendsUnderTest()[0], "_kills_", victim); }

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> CreateAndKill(const BackendContext& context, int victim) {
  if (context.rank == victim) raise(SIGKILL);
  const auto real = FindBackend(BackendsUnderTest()[0]);
  return real->create(context);
}

[[maybe_unused]] const bool registered = [] {
  for (const int victim : {0, 2}) {
    BackendInfo info;
    info.name = BackendThatKills(victim);
    info.devices = {c10::DeviceType::CPU};
    info.preference = -1;
    info.create = [victim](const BackendContext& context) { return CreateAndKill(context, victim); };
    RegisterBackend(std::move(info));
  }
  return true;
}();

TEST(GroupIsMade, ByRanksOfWhichOneDiesInTheMiddleNamingItByTheDeadline) {
  for (const int victim : {0, 2}) {
    Ranks ranks(3, Options(BackendThatKills(victim)), Make);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const auto making = ranks[rank].AwaitLine("making"), status = ranks.AwaitStatus(rank);
      ASSERT_TRUE(making && status);
      EXPECT_EQ(status->text,
                absl::StrCat("UNAVAILABLE: rank ", rank, " of 3: ", ranks.name(victim), " died: signal 9 (Killed)"));
      EXPECT_LT(status->time - making->time, kTimeout + absl::Seconds(2));
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
