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

using ::testing::AnyOf;
using testing::Process;
using testing::SayStatus;

constexpr absl::Duration kTimeout = absl::Seconds(3);

// The error of InitProcessGroup() on each rank, or of the first call: over hierarchical a rank that shares no
// connection with the victim may have its group when the victim dies.
int Make(const InitOptions& options, const Process::Say& say) {
  say("making");
  const auto group = InitProcessGroup(options);
  SayStatus(say, group.ok() ? (*group)->Barrier() : group.status());
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

constexpr int kVictims[] = {0, 2};

// A backend that is being made on all ranks when a rank dies.
std::string BackendThatKills(int victim, const std::string& backend) {
  return absl::StrCat(backend, "_kills_", victim);
}

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> CreateAndKill(const BackendContext& context, int victim,
                                                                const std::string& backend) {
  if (context.rank == victim) raise(SIGKILL);
  const auto real = FindBackend(backend);
  return real->create(context);
}

[[maybe_unused]] const bool registered = [] {
  for (const std::string& backend : BackendsUnderTest()) {
    for (const int victim : kVictims) {
      BackendInfo info;
      info.name = BackendThatKills(victim, backend);
      info.devices = {c10::DeviceType::CPU};
      info.preference = -1;
      info.create = [=](const BackendContext& context) { return CreateAndKill(context, victim, backend); };
      RegisterBackend(std::move(info));
    }
  }
  return true;
}();

// Only Gloo waits for its deadline.
absl::Duration BoundOf(const std::string& backend) {
  return backend == "gloo" ? kTimeout + absl::Seconds(2) : kTimeout - absl::Seconds(1);
}

TEST(GroupIsMade, ByRanksOfWhichOneDiesInTheMiddleNamingItByTheDeadline) {
  for (const std::string& backend : BackendsUnderTest()) {
    std::vector<std::unique_ptr<Ranks>> groups;
    for (const int victim : kVictims) {
      groups.push_back(std::make_unique<Ranks>(3, Options(BackendThatKills(victim, backend)), Make));
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      Ranks& ranks = *groups[i];
      const int victim = kVictims[i];
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == victim) continue;
        const auto making = ranks[rank].AwaitLine("making"), status = ranks.AwaitStatus(rank);
        ASSERT_TRUE(making && status) << backend << ", rank " << rank;
        const std::string cause = ranks.name(victim) + " died: signal 9 (Killed)";
        EXPECT_THAT(status->text, AnyOf(absl::StrCat("UNAVAILABLE: rank ", rank, " of 3: ", cause),
                                        absl::StrCat("UNAVAILABLE: rank ", rank, ": barrier #0: ", cause),
                                        absl::StrCat("UNAVAILABLE: ", cause)))
            << backend;
        EXPECT_LT(status->time - making->time, BoundOf(backend)) << backend << ", rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
