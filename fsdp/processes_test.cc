// Fully sharded training on ranks that are processes: dropout, and the death of a rank.

#include <ATen/ATen.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/dropout_net.h"
#include "lockstep/fsdp/full_state_dict.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using comm::testing::Process;
using comm::testing::RankProcesses;

constexpr int kVirtualRanks = 5;

// Runs five steps. `step` makes the optimizer's.
template <typename Handle, typename Step>
absl::Status Train(Handle& net, const Step& take_step) {
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] {
    for (int step = 0; step < 5 && status.ok(); ++step) {
      for (const int virtual_rank : net.VirtualRanks(step)) {
        const at::Tensor x = at::arange(4 * 6).add(1.3 * step + 2.7 * virtual_rank).mul(12.9898).sin().view({4, 6});
        net(x).pow(2).sum().backward();
      }
      status = take_step();
    }
  });
  return thrown.ok() ? status : thrown;
}

template <Residency residency>
absl::StatusOr<uint64_t> TrainSharded(const comm::InitOptions& init) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(init));
  at::manual_seed(3 + group->rank());
  Options options;
  options.virtual_ranks = kVirtualRanks;
  options.virtual_seed = 7;
  options.unit_bytes = 300;
  options.residency = residency;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(ddp::testing::DropoutNet(6, 16, 2), group.get(), options));
  optim::AdamW optimizer(net.shards(), optim::AdamWOptions(0.01).fused(true));
  LOCKSTEP_RETURN_IF_ERROR(Train(net, [&] { return net.Step(optimizer); }));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  const uint64_t digest = ddp::testing::Digest(*net.module());
  LOCKSTEP_RETURN_IF_ERROR(group->Barrier());
  return digest;
}

absl::StatusOr<uint64_t> TrainReplicated(const comm::InitOptions& init) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(init));
  at::manual_seed(3);
  ddp::Options options;
  options.virtual_ranks = kVirtualRanks;
  options.virtual_seed = 7;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(ddp::testing::DropoutNet(6, 16, 2), group.get(), options));
  optim::AdamW optimizer(net.parameters(), optim::AdamWOptions(0.01).fused(true));
  LOCKSTEP_RETURN_IF_ERROR(Train(net, [&] {
    optimizer.step();
    optimizer.zero_grad();
    return absl::OkStatus();
  }));
  return ddp::testing::Digest(*net.module());
}

// The digest of the last rank.
std::string DigestOn(int ranks, absl::StatusOr<uint64_t> (*train)(const comm::InitOptions&),
                     const std::string& backend = "auto", const comm::testing::NetworkHosts* hosts = nullptr) {
  comm::InitOptions options;
  options.backend = backend;
  options.timeout = absl::Seconds(30);
  const auto run = [train](const comm::InitOptions& init, const Process::Say& say) {
    const absl::StatusOr<uint64_t> digest = train(init);
    say(digest.ok() ? absl::StrCat("digest ", *digest) : std::string(digest.status().message()));
    return digest.ok() ? 0 : 1;
  };
  RankProcesses processes(ranks, options, run, hosts);
  const std::optional<Process::Line> line = processes[ranks - 1].AwaitLine("", absl::Seconds(60));
  return line ? line->text : "nothing was said";
}

TEST(FullyShardedProcesses, DropOutTheSameNumbersAsDistributedDataParallelOnAnyNumberOfRanks) {
  const std::string expected = DigestOn(1, TrainReplicated);
  ASSERT_EQ(expected.rfind("digest ", 0), 0) << expected;
  for (const int ranks : {1, 2, 3, 5}) {
    EXPECT_EQ(DigestOn(ranks, TrainSharded<Residency::kAuto>), expected) << ranks << " ranks";
    if (ranks == 5) continue;
    EXPECT_EQ(DigestOn(ranks, TrainSharded<Residency::kPaged>, "gloo"), expected) << ranks << " ranks, paged";
  }
}

// With four ranks, each host adds its gradients before it sends them. With three, the hosts differ.
TEST(FullyShardedProcesses, HaveTheSameBitsOnTwoHosts) {
  const auto hosts = comm::testing::NetworkHosts::Create(2);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  const std::string expected = DigestOn(1, TrainReplicated);
  for (const int ranks : {3, 4}) {
    EXPECT_EQ(DigestOn(ranks, TrainSharded<Residency::kAuto>, "hierarchical", hosts->get()), expected) << ranks;
  }
}

// Rank 1 ends in the first gather of its third step; rank 0 says what it learns of it.
int DieInAGather(const comm::InitOptions& init, const Process::Say& say) {
  const auto group = comm::InitProcessGroup(init);
  Options options;
  options.residency = Residency::kPaged;
  auto net = *Wrap(ddp::testing::DropoutNet(6, 16, 2), group->get(), options);
  optim::AdamW optimizer(net.shards(), 0.01);
  int steps = 0;
  const absl::Status status = Train(net, [&] {
    LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
    if (++steps == 2 && (*group)->rank() == 1) _exit(7);
    return absl::OkStatus();
  });
  say(absl::StrCat("after step ", steps, ": ", status.message()));
  return 0;
}

TEST(FullyShardedProcesses, TheDeathOfARankWhileAnotherGathersIsAnError) {
  for (const char* backend : {"gloo", "shm"}) {
    comm::InitOptions options;
    options.timeout = absl::Minutes(5);
    options.backend = backend;
    RankProcesses processes(2, options, DieInAGather);
    const std::optional<Process::Line> line = processes[0].AwaitLine("", absl::Seconds(30));
    ASSERT_TRUE(line);
    EXPECT_THAT(line->text, ::testing::HasSubstr("after step 2: "));
    EXPECT_THAT(line->text, ::testing::HasSubstr("rank 1"));
  }
}

// Rank 1 ends in its third step; rank 0 says what it learns of it.
int DieInAStep(const comm::InitOptions& init, const Process::Say& say) {
  const auto group = comm::InitProcessGroup(init);
  auto net = *Wrap(ddp::testing::DropoutNet(6, 16, 2), group->get(), {});
  optim::AdamW optimizer(net.shards(), 0.01);
  int steps = 0;
  const absl::Status status = Train(net, [&] {
    if (++steps == 3 && (*group)->rank() == 1) _exit(7);
    return net.Step(optimizer);
  });
  say(absl::StrCat("step ", steps, ": ", status.message()));
  return 0;
}

TEST(FullyShardedProcesses, TheDeathOfARankIsAnErrorOfTheOthers) {
  comm::InitOptions options;
  options.timeout = absl::Minutes(5);
  RankProcesses processes(2, options, DieInAStep);
  const std::optional<Process::Line> line = processes[0].AwaitLine("", absl::Seconds(30));
  ASSERT_TRUE(line);
  EXPECT_THAT(line->text, ::testing::HasSubstr("step 3: "));
  EXPECT_THAT(line->text, ::testing::HasSubstr("rank 1"));
}

// The last rank ends in its third step; the others say what they learn of it.
int DieInAHybridStep(const comm::InitOptions& init, const Process::Say& say) {
  const auto group = comm::InitProcessGroup(init);
  Options options;
  options.sharding_strategy = ShardingStrategy::kHybridShard;
  options.residency = Residency::kPaged;
  options.unit_bytes = 300;
  auto net = *Wrap(ddp::testing::DropoutNet(6, 16, 2), group->get(), options);
  optim::AdamW optimizer(net.shards(), 0.01);
  int steps = 0;
  const absl::Status status = Train(net, [&] {
    if (++steps == 3 && (*group)->rank() == 3) _exit(7);
    return net.Step(optimizer);
  });
  say(absl::StrCat("step ", steps, ": ", status.message()));
  absl::SleepFor(absl::Seconds(30));  // the others must not learn of it from this rank's end
  return 0;
}

TEST(FullyShardedProcesses, TheDeathOfARankOnAnotherHostIsAnErrorOfAllReplicas) {
  const auto hosts = comm::testing::NetworkHosts::Create(2);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  comm::InitOptions options;
  options.timeout = absl::Minutes(5);
  RankProcesses processes(4, options, DieInAHybridStep, hosts->get());
  for (int rank = 0; rank < 3; ++rank) {
    const std::optional<Process::Line> line = processes[rank].AwaitLine("", absl::Seconds(20));
    ASSERT_TRUE(line) << rank;
    EXPECT_THAT(line->text, ::testing::HasSubstr("exited with code 7"));
  }
  for (int rank = 0; rank < 3; ++rank) processes.Signal(rank, SIGKILL);
}

// Rank 1 ends while rank 0 writes a file of both ranks' states; rank 0 says what it learns of it.
int DieInASave(const comm::InitOptions& init, const Process::Say& say) {
  const auto group = comm::InitProcessGroup(init);
  auto net = *Wrap(ddp::testing::DropoutNet(6, 16, 2), group->get(), {});
  optim::AdamW optimizer(net.shards(), 0.01);
  absl::Status status = Train(net, [&] { return net.Step(optimizer); });
  if ((*group)->rank() == 1) {
    std::thread([] {
      absl::SleepFor(absl::Milliseconds(500));
      _exit(7);
    }).detach();
  }
  status.Update(SaveFullStateDict(absl::StrCat(::testing::TempDir(), "/last.pt"), net, optimizer,
                                  [](const checkpoint::Value&, const checkpoint::Value& whole) {
                                    absl::SleepFor(absl::Seconds(2));
                                    return whole;
                                  }));
  say(absl::StrCat("saved: ", status.message()));
  return 0;
}

TEST(FullyShardedProcesses, TheDeathOfARankInASaveIsAnErrorOfTheOthers) {
  comm::InitOptions options;
  options.timeout = absl::Minutes(5);
  RankProcesses processes(2, options, DieInASave);
  const std::optional<Process::Line> line = processes[0].AwaitLine("", absl::Seconds(30));
  ASSERT_TRUE(line);
  EXPECT_THAT(line->text, ::testing::HasSubstr("saved: "));
  EXPECT_THAT(line->text, ::testing::HasSubstr("rank 1"));
  EXPECT_NE(access(absl::StrCat(::testing::TempDir(), "/last.pt").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace lockstep::fsdp
