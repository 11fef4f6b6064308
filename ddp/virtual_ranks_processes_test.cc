// Training with dropout gives the same bits on any number of ranks, which are processes, on one host and on several.

#include <ATen/ATen.h>
#include <torch/optim/adam.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/dropout_net.h"

namespace lockstep::ddp {
namespace {

using comm::testing::NetworkHosts;
using comm::testing::Process;
using comm::testing::RankProcesses;

constexpr int kVirtualRanks = 5;

absl::StatusOr<uint64_t> Train(const comm::InitOptions& init, int64_t seed) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, comm::InitProcessGroup(init));
  at::manual_seed(3);
  testing::DropoutNet net(6, 16, 2);
  Options options;
  options.virtual_ranks = kVirtualRanks;
  options.virtual_seed = seed;
  LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, Wrap(net, group.get(), options));
  torch::optim::Adam optimizer(ddp.parameters(), 0.01);
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      for (const int virtual_rank : ddp.VirtualRanks(step)) {
        const at::Tensor x = at::arange(4 * 6).add(1.3 * step + 2.7 * virtual_rank).mul(12.9898).sin().view({4, 6});
        ddp(x).pow(2).sum().backward();
      }
      optimizer.step();
    }
  }));
  const uint64_t digest = testing::Digest(*net);
  LOCKSTEP_RETURN_IF_ERROR(group->Barrier());
  return digest;
}

// Rank 0's digest.
std::string DigestOn(int ranks, int64_t seed, const NetworkHosts* hosts = nullptr) {
  comm::InitOptions options;
  options.timeout = absl::Seconds(30);
  RankProcesses processes(
      ranks, options,
      [seed](const comm::InitOptions& init, const Process::Say& say) {
        const absl::StatusOr<uint64_t> digest = Train(init, seed);
        say(digest.ok() ? absl::StrCat("digest ", *digest) : std::string(digest.status().message()));
        return digest.ok() ? 0 : 1;
      },
      hosts);
  const std::optional<Process::Line> line = processes[0].AwaitLine("", absl::Seconds(60));
  return line ? line->text : "nothing was said";
}

TEST(VirtualRanks, DropOutTheSameNumbersOnAnyNumberOfRanks) {
  const std::string expected = DigestOn(1, /*seed=*/7);
  ASSERT_EQ(expected.rfind("digest ", 0), 0) << expected;
  for (const int ranks : {2, 3, 5}) EXPECT_EQ(DigestOn(ranks, 7), expected) << ranks << " ranks";
  EXPECT_NE(DigestOn(1, 8), expected) << "another seed";
}

TEST(VirtualRanks, AreTheSameOnTwoHosts) {
  const auto hosts = NetworkHosts::Create(2);
  ASSERT_EQ(hosts.status(), absl::OkStatus());
  EXPECT_EQ(DigestOn(4, 7, hosts->get()), DigestOn(1, 7));
}

}  // namespace
}  // namespace lockstep::ddp
