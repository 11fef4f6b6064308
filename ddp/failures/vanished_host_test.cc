// The errors and messages of training ranks when the store goes with rank 0; and when a host vanishes without a word:
// its network drops all packets, as when the host loses power. The watch finds it by TCP keep-alive, 20 s after the
// last packet, however long the group's timeout is.
//
// The ranks run on three hosts, two of them on the first: over Gloo, and over hierarchical, where the two share memory.
// Shared memory alone has no second host to lose.

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/init_process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/process.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/ddp/distributed_data_parallel.h"

namespace lockstep::ddp {
namespace {

using comm::InitOptions;
using comm::testing::NetworkHosts;
using comm::testing::Process;
using comm::testing::RankProcesses;
using comm::testing::SayStatus;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 4, kHosts = 3, kGoodSteps = 3;
constexpr absl::Duration kPromised = absl::Seconds(20);

struct Case {
  std::string backend;
  int host;         // the one that vanishes
  bool in_forward;  // while the others are in forward, which broadcasts a buffer; else in backward

  std::string name() const {
    return absl::StrCat(backend, ", host ", host, " vanishes in ", in_forward ? "forward" : "backward");
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string backend : {"gloo", "hierarchical"}) {
    for (const int host : {0, 1}) {
      for (const bool in_forward : {true, false}) cases.push_back({backend, host, in_forward});
    }
  }
  return cases;
}

int HostOf(int rank) { return rank < 2 ? 0 : rank - 1; }

// The rank of the host that waits, in or before the step that fails, for what becomes of it.
int WaitingRank(const Case& c) { return c.host == 0 ? 0 : 2; }

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("layer", layer);
    register_buffer("calls", at::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x).sum(); }
  torch::nn::Linear layer{8, 8};
};
TORCH_MODULE(Net);

[[noreturn]] void WaitForTheEnd(const Process::Say& say) {
  say("at the step");
  while (true) pause();
}

int Train(const Case& c, const InitOptions& options, const Process::Say& say) {
  const auto group = comm::InitProcessGroup(options).value();
  auto ddp = Wrap(Net(), group.get()).value();
  const auto step = [&](bool waits_in_backward) {
    at::Tensor loss = ddp(at::ones({2, 8}));
    if (waits_in_backward) loss.register_hook([&](const at::Tensor&) { WaitForTheEnd(say); });
    loss.backward();
  };
  for (int i = 0; i < kGoodSteps; ++i) step(false);
  const bool waits = options.rank == WaitingRank(c);
  if (waits && c.in_forward) WaitForTheEnd(say);
  if (!waits) say("at the step");
  absl::Status status;
  while (status.ok()) status = TorchStatus("", [&] { step(waits); });
  fprintf(stderr, "%s\n", status.ToString().c_str());  // as a program does
  SayStatus(say, status);
  SayStatus(say, TorchStatus("", [&] { step(false); }));
  return 0;
}

// Four ranks on three hosts that are theirs alone.
struct World {
  explicit World(const Case& c)
      : hosts(NetworkHosts::Create(kHosts).value()),
        ranks(
            kRanks, OptionsOf(c), [c](const InitOptions& own, const Process::Say& say) { return Train(c, own, say); },
            hosts.get()) {}

  static InitOptions OptionsOf(const Case& c) {
    InitOptions options;  // with the timeout that it has by default
    options.backend = c.backend;
    options.debug = comm::Debug::kOff;
    return options;
  }

  std::unique_ptr<NetworkHosts> hosts;
  RankProcesses ranks;
};

// All cases wait at once.
TEST(TrainingRanks, AHostThatVanishesIsNamedByTheOthersWithin20sAndNothingHangs) {
  const std::vector<Case> cases = Cases();
  std::vector<std::unique_ptr<World>> worlds;
  for (const Case& c : cases) {
    worlds.push_back(std::make_unique<World>(c));
    ASSERT_TRUE(worlds.back()->ranks.AwaitAll("at the step")) << c.name();
  }
  absl::SleepFor(absl::Milliseconds(200));  // until the others are in the call
  std::vector<absl::Duration> vanished;
  for (size_t i = 0; i < cases.size(); ++i) {
    ASSERT_EQ(worlds[i]->hosts->Cut(cases[i].host), absl::OkStatus());
    vanished.push_back(Process::Now());
  }
  absl::Duration slowest;
  for (size_t i = 0; i < cases.size(); ++i) {
    RankProcesses& ranks = worlds[i]->ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == WaitingRank(cases[i])) continue;
      SCOPED_TRACE(absl::StrCat(cases[i].name(), ", rank ", rank));
      const absl::Duration patience = vanished[i] + kPromised + absl::Seconds(10) - Process::Now();
      const auto status = ranks[rank].AwaitLine("status ", patience), again = ranks[rank].AwaitLine("status ");
      ASSERT_TRUE(status && again);
      EXPECT_THAT(status->text, StartsWith("status UNAVAILABLE: "));
      if (HostOf(rank) != cases[i].host) {
        EXPECT_THAT(status->text, HasSubstr(ranks.name(WaitingRank(cases[i]))));
        EXPECT_THAT(status->text, HasSubstr(" was lost: its connection broke"));
      } else {
        // The ranks of other hosts may have ended, which this rank sees, as all of them run on one machine.
        EXPECT_THAT(status->text,
                    AnyOf(HasSubstr(" was lost: its connection broke"), HasSubstr(" exited with code 0")));
      }
      EXPECT_LT(status->time - vanished[i], kPromised + absl::Seconds(4));
      EXPECT_LT(again->time - status->time, absl::Seconds(3)) << "a store that has gone is asked for 1 s";
      EXPECT_EQ(ranks[rank].Wait(), 0);
      EXPECT_LT(ranks[rank].end_time() - again->time, absl::Seconds(10));
      slowest = std::max(slowest, status->time - vanished[i]);
    }
  }
  printf("MEASURED a host vanishes, to the last error: %.1f s\n", absl::ToDoubleSeconds(slowest));
}

// Writes everything that a process prints to stderr from now on to the file.
void RedirectStderr(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  dup2(file.get(), STDERR_FILENO);
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The others ask rank 0's store whether a rank has left word, find that it is gone, and log nothing about it.
TEST(TrainingRanks, WhenRank0IsKilledTheOthersWriteTheLineThatNamesItAndNothingElse) {
  const comm::testing::TemporaryFolder folder;
  const auto hosts = NetworkHosts::Create(1).value();  // so that they meet over TCP
  const auto stderr_of = [&](int rank) { return absl::StrCat(folder.path(), "/", rank); };
  for (const std::string backend : {"gloo", "shm"}) {
    const Case c{backend, /*host=*/0, /*in_forward=*/false};
    RankProcesses ranks(
        3, World::OptionsOf(c),
        [&](const InitOptions& own, const Process::Say& say) {
          RedirectStderr(stderr_of(own.rank));
          return Train(c, own, say);
        },
        hosts.get());
    ASSERT_TRUE(ranks.AwaitAll("at the step"));
    ranks.Signal(0, SIGKILL);
    for (const int rank : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(backend, ", rank ", rank));
      const auto status = ranks.AwaitStatus(rank);
      ASSERT_TRUE(status);
      EXPECT_EQ(ranks[rank].Wait(), 0);
      EXPECT_THAT(status->text, HasSubstr(ranks.name(0) + " died: signal 9 (Killed)"));
      EXPECT_EQ(ContentOf(stderr_of(rank)), status->text + "\n");
      unlink(stderr_of(rank).c_str());
    }
  }
}

}  // namespace
}  // namespace lockstep::ddp
