// The watch among processes: what the others hear when one is killed, stopped, or ends, and how soon.

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/base/testing/thread_budget.h"
#include "lockstep/comm/testing/process.h"
#include "lockstep/comm/watch/testing/watches.h"
#include "lockstep/comm/watch/watch.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::FewDescriptors;
using ::lockstep::testing::ThreadBudget;
using testing::FolderStore;
using testing::Layout;
using testing::OptionsOver;
using testing::Process;
using testing::TemporaryFolder;

// Options for `rank` once it has met the others. Unless they are on one host, it is as if the last rank's network were
// another one, so that they take TCP.
WatchOptions Meet(FolderStore& store, int rank, int size, const Layout& layout) {
  const auto key = [](int of) { return absl::StrCat("identity", of); };
  EXPECT_TRUE(store.Set(key(rank), EncodeIdentity(IdentityOfThisProcess(rank))).ok());
  std::vector<RankIdentity> ranks;
  for (int of = 0; of < size; ++of) {
    ranks.push_back(DecodeIdentity(store.Get(key(of), absl::Now() + absl::Seconds(20)).value()).value());
  }
  if (!layout.one_host) ranks.back().network_namespace = "net:[another]";
  WatchOptions options = OptionsOver(&store, rank, std::move(ranks));
  options.hub = layout.hub;
  return options;
}

// Processes that are ranks of one watch.
class Ranks {
 public:
  using Body = std::function<void(int rank, Watch& watch, const Process::Say& say)>;

  // Each says who it is, meets the others and then does `body`.
  Ranks(int size, const Layout& layout, const Body& body) {
    for (int rank = 0; rank < size; ++rank) {
      processes_.emplace_back([&, rank](const Process::Say& say) {
        FolderStore store(folder_.path());
        WatchOptions options = Meet(store, rank, size, layout);
        say(NameOf(options.ranks[rank]));
        body(rank, *Watch::Create(std::move(options)).value(), say);
        return 0;
      });
    }
    for (Process& process : processes_) names_.push_back(process.AwaitLine("rank ")->text);
  }

  Process& operator[](int rank) { return processes_[rank]; }
  const std::string& name(int rank) const { return names_[rank]; }

  // Expects `text` as the next failure that `rank` reports, at most `limit` after `event`.
  void ExpectFailure(int rank, const std::string& text, absl::Duration event, absl::Duration limit) {
    const auto line = processes_[rank].AwaitLine("failed ");
    ASSERT_TRUE(line) << "rank " << rank << " said nothing";
    EXPECT_EQ(line->text, "failed " + text);
    EXPECT_LT(line->time - event, limit) << "rank " << rank;
    latest_ = std::max(latest_, line->time - event);
  }
  absl::Duration latest() const { return latest_; }

 private:
  TemporaryFolder folder_;
  std::vector<Process> processes_;
  std::vector<std::string> names_;
  absl::Duration latest_;
};

// Begins call 7 and waits for the first cause, asking nobody.
void WaitInACall(int rank, Watch& watch, const Process::Say& say) {
  watch.Begin(7, "all_reduce");
  say("in call");
  while (watch.failure().ok()) absl::SleepFor(absl::Milliseconds(1));
  say(absl::StrCat("failed ", watch.failure().ToString()));
  pause();
}

class WatchAmongProcesses : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, WatchAmongProcesses, ::testing::ValuesIn(testing::kLayouts),
                         [](const auto& param) { return testing::NameOf(param.param); });

TEST_P(WatchAmongProcesses, AKilledRankIsNamedWithItsSignalAtOnce) {
  for (const int victim : {0, 1}) {
    Ranks ranks(4, GetParam(), WaitInACall);
    for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(ranks[rank].AwaitLine("in call"));
    const absl::Duration killed = Process::Now();
    ranks[victim].Signal(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      ranks.ExpectFailure(rank, absl::StrCat("UNAVAILABLE: ", ranks.name(victim), " died: signal 9 (Killed)"), killed,
                          absl::Seconds(1));
    }
    printf("rank %d killed: the last of the others knew after %s\n", victim,
           absl::FormatDuration(ranks.latest()).c_str());
  }
}

TEST_P(WatchAmongProcesses, ARankThatExitsInsideTheGroupIsNamedWithItsCode) {
  Ranks ranks(3, GetParam(), [](int rank, Watch& watch, const Process::Say& say) {
    if (rank == 1) _exit(3);
    WaitInACall(rank, watch, say);
  });
  for (const int rank : {0, 2}) {
    ranks.ExpectFailure(rank, absl::StrCat("UNAVAILABLE: ", ranks.name(1), " exited with code 3"), Process::Now(),
                        absl::Seconds(2));
  }
}

TEST_P(WatchAmongProcesses, ARankThatAbortsAndDiesIsNamedByItsMessage) {
  for (const int victim : {0, 1}) {
    Ranks ranks(3, GetParam(), [victim](int rank, Watch& watch, const Process::Say& say) {
      if (rank == victim) {
        watch.Abort(absl::InternalError("no memory"));
        _exit(3);
      }
      WaitInACall(rank, watch, say);
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      ranks.ExpectFailure(rank, absl::StrCat("ABORTED: ", ranks.name(victim), " failed: no memory"), Process::Now(),
                          absl::Seconds(2));
    }
  }
}

// A stopped rank's kernel goes on holding its connections: only a timeout tells.
TEST_P(WatchAmongProcesses, AStoppedRankIsNamedAtTheTimeout) {
  for (const int victim : {0, 1}) {
    Ranks ranks(3, GetParam(), [victim](int rank, Watch& watch, const Process::Say& say) {
      if (rank == victim) return WaitInACall(rank, watch, say);
      watch.Begin(8, "barrier");
      say("in call");
      FolderStore("").Get("never", absl::Now() + absl::Milliseconds(300)).IgnoreError();
      say(absl::StrCat("failed ", watch.ExplainTimeout(8, "barrier", absl::Seconds(3)).ToString()));
      pause();
    });
    ASSERT_TRUE(ranks[victim].AwaitLine("in call"));
    ranks[victim].Signal(SIGSTOP);
    const absl::Duration stopped = Process::Now();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      ranks.ExpectFailure(
          rank, absl::StrCat("DEADLINE_EXCEEDED: barrier #8 timed out after 3s: ", ranks.name(victim), " is stopped"),
          stopped, absl::Milliseconds(300) + absl::Seconds(2));
    }
    printf("rank %d stopped: the last of the others knew %s after its timeout\n", victim,
           absl::FormatDuration(ranks.latest() - absl::Milliseconds(300)).c_str());
    // Once it goes on, it learns what the others decided.
    ranks[victim].Signal(SIGCONT);
    const auto line = ranks[victim].AwaitLine("failed ");
    ASSERT_TRUE(line);
    EXPECT_TRUE(absl::StartsWith(line->text, "failed DEADLINE_EXCEEDED: barrier #8 timed out after 3s: "))
        << line->text;
  }
}

TEST_P(WatchAmongProcesses, AStoppedHubDoesNotHoldAnErrorOrAFarewellUp) {
  const int hub = GetParam().hub, other = 1 - hub;
  Ranks ranks(2, GetParam(), [hub](int rank, Watch& watch, const Process::Say& say) {
    if (rank == hub) {
      raise(SIGSTOP);
      pause();
    }
    say("here");
    const absl::Status cause = watch.Explain(absl::InternalError("odd"));
    say(absl::StrCat("failed ", cause.ToString()));
  });
  int status = 0;
  ASSERT_EQ(waitpid(ranks[hub].pid(), &status, WUNTRACED), ranks[hub].pid());
  const auto here = ranks[other].AwaitLine("here");
  const auto failed = ranks[other].AwaitLine("failed ");
  ASSERT_TRUE(here && failed);
  EXPECT_TRUE(absl::StartsWith(failed->text, absl::StrCat("failed UNAVAILABLE: ", ranks.name(hub), " ")))
      << failed->text;
  EXPECT_TRUE(absl::EndsWith(failed->text, absl::StrCat("; ", ranks.name(other), " failed: odd"))) << failed->text;
  EXPECT_LT(failed->time - here->time, absl::Seconds(2));
  EXPECT_EQ(ranks[other].Wait(), 0);
  EXPECT_LT(ranks[other].end_time() - failed->time, absl::Seconds(1));
}

TEST_P(WatchAmongProcesses, ARankThatDiesBeforeItConnectsIsNamedLongBeforeTheDeadline) {
  for (const int victim : {0, 2}) {
    const TemporaryFolder folder;
    std::vector<Process> processes;
    for (int rank = 0; rank < 3; ++rank) {
      processes.emplace_back([&, rank](const Process::Say& say) {
        FolderStore store(folder.path());
        WatchOptions options = Meet(store, rank, 3, GetParam());
        say(NameOf(options.ranks[rank]));
        if (rank == victim) _exit(4);
        say(absl::StrCat("failed ", Watch::Create(std::move(options)).status().ToString()));
        return 0;
      });
    }
    const std::string name = processes[victim].AwaitLine("rank ")->text;
    const absl::Duration start = Process::Now();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      const auto line = processes[rank].AwaitLine("failed ");
      ASSERT_TRUE(line);
      EXPECT_EQ(line->text, absl::StrCat("failed UNAVAILABLE: ", name, " exited with code 4"));
      EXPECT_LT(line->time - start, absl::Seconds(2));
    }
  }
}

// The results of Watch::Create() on each of four processes, or the watch's messages soon after, with their times and
// the names of the processes. `hinder` runs before it, and the object that it returns lasts until the end.
using Hinder = std::function<std::shared_ptr<void>(int rank)>;
struct Created {
  std::string name;
  std::string status;
  absl::Duration took, processor_time;
};
std::vector<Created> CreateAmongFour(const Layout& layout, const Hinder& hinder) {
  const TemporaryFolder folder;
  std::vector<Process> processes;
  for (int rank = 0; rank < 4; ++rank) {
    processes.emplace_back([&, rank](const Process::Say& say) {
      FolderStore store(folder.path());
      WatchOptions options = Meet(store, rank, 4, layout);
      say(NameOf(options.ranks[rank]));
      std::shared_ptr<void> hindrance = hinder(rank);
      // A store of the network needs no descriptor for it.
      options.set = [&](const std::string& key, const std::string& value) {
        hindrance.reset();
        const absl::Status status = store.Set(key, value);
        hindrance = hinder(rank);
        return status;
      };
      const absl::Duration start = Process::Now();
      const clock_t processor_start = clock();
      const auto watch = Watch::Create(options);
      absl::Status status = watch.status();
      // A rank may fail once all have connected.
      for (int i = 0; i < 100 && watch.ok() && status.ok(); ++i) {
        absl::SleepFor(absl::Milliseconds(5));
        status = (*watch)->failure();
      }
      say(absl::StrCat("created ", status.ToString()));
      say(absl::StrCat("took ", absl::FormatDuration(Process::Now() - start)));
      say(absl::StrCat("processor ", absl::FormatDuration(absl::Microseconds(clock() - processor_start))));
      return 0;
    });
  }
  std::vector<Created> created;
  for (Process& process : processes) created.push_back({process.AwaitLine("rank ")->text, "", {}, {}});
  for (int rank = 0; rank < 4; ++rank) {
    Created& of = created[rank];
    of.status = processes[rank].AwaitLine("created ")->text.substr(8);
    EXPECT_TRUE(absl::ParseDuration(processes[rank].AwaitLine("took ")->text.substr(5), &of.took));
    EXPECT_TRUE(absl::ParseDuration(processes[rank].AwaitLine("processor ")->text.substr(10), &of.processor_time));
  }
  return created;
}

// The culprit's own status contains `text`; the others get it with the culprit's name.
void ExpectFailureEverywhere(const std::vector<Created>& created, int culprit, const std::string& text) {
  for (int rank = 0; rank < 4; ++rank) {
    const Created& of = created[rank];
    const std::string start =
        rank == culprit ? "RESOURCE_EXHAUSTED: " : absl::StrCat("ABORTED: ", created[culprit].name, " failed: ");
    EXPECT_TRUE(absl::StartsWith(of.status, start) && absl::StrContains(of.status, text))
        << "rank " << rank << ": " << of.status;
    EXPECT_LT(of.took, absl::Seconds(4)) << "rank " << rank << ": " << of.status;
    EXPECT_LT(of.processor_time, absl::Seconds(1)) << "rank " << rank;
  }
}

// With more descriptors it gets further, and in the end through.
TEST_P(WatchAmongProcesses, WhoseHubIsOutOfDescriptorsAllFailAtOnceNamingIt) {
  const int hub = GetParam().hub;
  int failed = 0;
  for (int free = 0;; ++free) {
    ASSERT_LT(free, 40);
    const std::vector<Created> created = CreateAmongFour(GetParam(), [&](int rank) -> std::shared_ptr<void> {
      return rank == hub ? std::make_shared<FewDescriptors>(free) : nullptr;
    });
    if (created[hub].status == "OK") break;
    ExpectFailureEverywhere(created, hub, absl::StrCat(": Too many open files (the soft limit of open files is "));
    ++failed;
  }
  EXPECT_GE(failed, 6) << "the socket, the event, epoll, and three connections";
}

TEST_P(WatchAmongProcesses, OneOfWhichGetsNoThreadAllFailAtOnceNamingIt) {
  for (const int culprit : {0, 2}) {
    const std::vector<Created> created = CreateAmongFour(GetParam(), [&](int rank) -> std::shared_ptr<void> {
      return rank == culprit ? std::make_shared<ThreadBudget>(0) : nullptr;
    });
    ExpectFailureEverywhere(created, culprit, "cannot start the watch's thread: Resource temporarily unavailable (");
  }
}

}  // namespace
}  // namespace lockstep::comm
