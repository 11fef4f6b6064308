// Hybrid sharding: each host has all shards. Ranks are threads on hosts that are network namespaces.

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/sharded/sharded.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/fsdp/full_state_dict.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/memory_report.h"
#include "lockstep/fsdp/no_sync.h"
#include "lockstep/fsdp/state_dict.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/fsdp/testing/small_net.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::fsdp {
namespace {

using ::testing::AllOf;
using testing::Copies;
using ::testing::HasSubstr;
using testing::MakeOptimizer;
using testing::OnHosts;
using testing::OptimizerKind;
using testing::Tensors;

constexpr int kVirtualRanks = 8, kSteps = 3;
constexpr double kMaxNorm = 0.01;

void ExpectOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
}

Options Hybrid(Residency residency = Residency::kAuto) {
  Options options;
  options.sharding_strategy = ShardingStrategy::kHybridShard;
  options.residency = residency;
  options.virtual_ranks = kVirtualRanks;
  options.unit_bytes = 3000;
  return options;
}

// A run: steps [first, last), after loading `from`, and before saving `to`.
struct Training {
  int first = 0, last = kSteps;
  std::string from = "", to = "";
};

// The parameters and buffers at the end.
absl::StatusOr<Tensors> Train(comm::ProcessGroup& group, const Options& options, const Training& run = {}) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto net,
      Wrap(testing::MakeNet(group.rank() + (run.from.empty() ? 0 : 5), /*channels_last=*/true), &group, options));
  const auto optimizer = MakeOptimizer(OptimizerKind::kFusedSgd, net.shards());
  if (!run.from.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadStateDict(run.from, net, *optimizer));
  for (int step = run.first; step < run.last; ++step) {
    for (const int v : net.VirtualRanks(step)) net(testing::Tokens(step, v)).square().mean().backward();
    LOCKSTEP_ASSIGN_OR_RETURN(const double norm, net.ClipGradNorm(kMaxNorm));
    EXPECT_GT(norm, kMaxNorm);
    LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
  }
  if (!run.to.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const checkpoint::ShardedStateDict state, GetStateDict(net, *optimizer));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSharded(run.to, state, &group));
    const auto compose = [](const checkpoint::Value& model, const checkpoint::Value& optimizer) {
      return checkpoint::Value::Dict({{"model", model}, {"optimizer", optimizer}});
    };
    LOCKSTEP_RETURN_IF_ERROR(SaveFullStateDict(run.to + "/net.pt", net, *optimizer, compose));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
  Tensors all = Copies(net.parameters());
  for (const at::Tensor& buffer : net.module()->buffers()) all.push_back(buffer.clone());
  LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
  return all;
}

Tensors TrainReplicated() {
  return testing::OnRanks(1, [](comm::ProcessGroup& group) -> absl::StatusOr<Tensors> {
    ddp::Options options;
    options.virtual_ranks = kVirtualRanks;
    options.find_unused_parameters = true;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(testing::MakeNet(0, /*channels_last=*/true), &group, options));
    const auto optimizer = MakeOptimizer(OptimizerKind::kFusedSgd, net.parameters());
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      for (const int v : net.VirtualRanks(step)) net(testing::Tokens(step, v)).square().mean().backward();
      LOCKSTEP_RETURN_IF_ERROR(ddp::ClipGradNorm(group, net.parameters(), kMaxNorm).status());
      optimizer->step();
    }
    Tensors all = Copies(net.parameters());
    for (const at::Tensor& buffer : net.module()->buffers()) all.push_back(buffer.clone());
    return all;
  })[0];
}

void ExpectEqual(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "tensor " << i;
}

// With three hosts, and one rank a host, no rank of some hosts has a virtual rank in the last round.
TEST(HybridShard, HasTheBitsOfDistributedDataParallel) {
  const Tensors expected = TrainReplicated();
  for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 0, 1, 1, 2, 2},
                                          std::vector<int>{0, 1, 1, 0}, std::vector<int>{0, 1, 2}}) {
    for (const std::string place : {"shared pages", "paged", "gloo"}) {
      SCOPED_TRACE(absl::StrCat("ranks on hosts ", absl::StrJoin(host_of, ", "), ", ", place));
      const Options options = Hybrid(place == "shared pages" && host_of.size() > 3 ? Residency::kSharedPages
                                     : place == "paged"                            ? Residency::kPaged
                                                                                   : Residency::kAuto);
      const auto train = [&](comm::ProcessGroup& group) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const Tensors found, Train(group, options));
        ExpectEqual(found, expected);
        return absl::OkStatus();
      };
      ExpectOk(OnHosts(host_of, train, place == "gloo" ? "gloo" : "auto"));
    }
  }
}

TEST(HybridShard, IsFullShardOnOneHost) {
  const Tensors expected = TrainReplicated();
  for (const Tensors& found :
       testing::OnRanks(3, [](comm::ProcessGroup& group) { return Train(group, Hybrid(Residency::kSharedPages)); }))
    ExpectEqual(found, expected);
}

TEST(HybridShard, RefusesHostsWithDifferentNumbersOfRanks) {
  for (const absl::Status& status : OnHosts(
           {0, 0, 1}, [](comm::ProcessGroup& group) { return Wrap(testing::Scale(), &group, Hybrid()).status(); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("sharding_strategy kHybridShard: expected as many ranks on each host, found ranks 0, 1 on "
                        "host "),
              HasSubstr("; rank 2 on host ")));
  }
}

// Each host's ranks at one place have the same shards, and the mean gradients of all ranks.
TEST(HybridShard, SeveralBackwardPassesOfAStepAddUp) {
  for (const Residency residency : {Residency::kSharedPages, Residency::kPaged}) {
    for (const Shard shard : {Shard::kElements, Shard::kRows}) {
      ExpectOk(OnHosts({0, 0, 1, 1}, [&](comm::ProcessGroup& group) -> absl::Status {
        Options options = Hybrid(residency);
        options.virtual_ranks = 0;
        options.shard = shard;
        LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::Scale(), &group, options));
        const int64_t own = shard == Shard::kRows ? 25 : group.rank() % 2 == 0 ? 48 : 2;
        EXPECT_EQ(net.shards()[0].numel(), own);
        const auto backward = [&](int i) { net(at::arange(50).mul(2.0 * i * group.rank())).backward(); };
        for (int i = 1; i <= 3; ++i) backward(i);
        {
          const NoSync no_sync(net);
          backward(4);
        }
        backward(5);
        LOCKSTEP_RETURN_IF_ERROR(net.Step([&] {
          const at::Tensor expected = at::arange(50).mul(3.0 * (1 + 2 + 3 + 4 + 5));
          const int64_t begin = group.rank() % 2 == 0 ? 0 : 50 - own;
          EXPECT_TRUE(net.shards()[0].grad().equal(expected.narrow(0, begin, own))) << net.shards()[0].grad();
        }));
        return group.Barrier();
      }));
    }
  }
}

TEST(HybridShard, HasTheSameBitsInMixedPrecision) {
  const auto train = [](comm::ProcessGroup& group, Options options, Tensors& result) -> absl::Status {
    options.mixed_precision.emplace();
    torch::nn::Linear linear(31, 9);
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : linear->parameters()) parameter.fill_(0.3 + group.rank());
    }
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(linear, &group, options));
    const auto optimizer = MakeOptimizer(OptimizerKind::kFusedSgd, net.shards());
    for (int step = 0; step < 5; ++step) {
      for (const int v : net.VirtualRanks(step)) net(at::arange(31.0).mul(step + v).sin()).square().mean().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const auto full, net.FullParameters());
    result = Copies(net.parameters());
    return group.Barrier();
  };
  Tensors expected;
  ExpectOk(testing::OnRanks(1, "shm", [&](comm::ProcessGroup& group) {
    Options options = Hybrid();
    options.sharding_strategy = ShardingStrategy::kFullShard;
    return train(group, options, expected);
  }));
  for (const Residency residency : {Residency::kSharedPages, Residency::kPaged}) {
    ExpectOk(OnHosts({0, 0, 1, 1}, [&](comm::ProcessGroup& group) -> absl::Status {
      Tensors found;
      LOCKSTEP_RETURN_IF_ERROR(train(group, Hybrid(residency), found));
      ExpectEqual(found, expected);
      return absl::OkStatus();
    }));
  }
}

// The errors by rank, within a third of the group's timeout.
std::vector<std::string> ErrorsOf(const std::function<absl::Status(comm::ProcessGroup& group)>& body) {
  const absl::Time begin = absl::Now();
  std::vector<std::string> errors;
  for (const absl::Status& status : OnHosts({0, 0, 1, 1}, body)) errors.emplace_back(status.message());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  return errors;
}

// Rank 2 waits for rank 3 in the group of their host, and ranks 0 and 1 wait for them in that of all ranks.
TEST(HybridShard, AnOptimizerThatFailsOnOneRankIsAnErrorOfAll) {
  EXPECT_THAT(ErrorsOf([](comm::ProcessGroup& group) -> absl::Status {
                Options options = Hybrid(Residency::kSharedPages);
                options.virtual_ranks = 0;
                LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::Scale(), &group, options));
                absl::Status status;
                for (int step = 0; step < 2 && status.ok(); ++step) {
                  status = TorchStatus("", [&] { net(at::ones({50})).backward(); });
                  if (status.ok()) status = net.Step([&] { TORCH_CHECK(group.rank() != 3, "no step") });
                }
                return status;
              }),
              ::testing::Each(HasSubstr("no step")));
}

// Ranks 2 and 3 wait for the others in the group of all ranks.
TEST(HybridShard, RanksOfOneHostThatDoDifferentThingsAreNamedOnAll) {
  EXPECT_THAT(ErrorsOf([](comm::ProcessGroup& group) -> absl::Status {
                Options options = Hybrid(Residency::kPaged);
                options.virtual_ranks = 0;
                LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::Scale(), &group, options));
                LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // no rank is in Wrap() any more
                if (group.rank() == 1) return net.FullParameters().status();
                LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { net(at::ones({50})).backward(); }));
                return net.Step([] {});
              }),
              ::testing::Each(HasSubstr("rank 0 gathers the unit of weight in step 0, rank 1 opens FullParameters()")));
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The ranks of an odd place save nothing in SaveFullStateDict(), and load their part of the optimizer.
TEST(HybridShard, ContinuesFromACheckpointOfFullShardAndBack) {
  const Tensors expected = TrainReplicated();
  const checkpoint::testing::Folder folder;
  Options full = Hybrid();
  full.sharding_strategy = ShardingStrategy::kFullShard;
  const auto on_hosts = [](const Options& options, const Training& run, const Tensors* expected = nullptr) {
    ExpectOk(OnHosts({0, 0, 1, 1}, [&](comm::ProcessGroup& group) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(const Tensors found, Train(group, options, run));
      if (expected) ExpectEqual(found, *expected);
      return absl::OkStatus();
    }));
  };
  const std::string hybrid_path = folder.path() + "/hybrid", full_path = folder.path() + "/full";
  on_hosts(Hybrid(), {0, 2, "", hybrid_path});
  testing::OnRanks(3, [&](comm::ProcessGroup& group) { return Train(group, full, {0, 2, "", full_path}); });
  EXPECT_EQ(Contents(hybrid_path + "/net.pt"), Contents(full_path + "/net.pt"));
  EXPECT_GT(Contents(full_path + "/net.pt").size(), 1000);
  for (const Residency residency : {Residency::kSharedPages, Residency::kPaged})
    on_hosts(Hybrid(residency), {2, kSteps, full_path, ""}, &expected);
  on_hosts(full, {2, kSteps, hybrid_path, ""}, &expected);
  for (const Tensors& found : testing::OnRanks(3, [&](comm::ProcessGroup& group) {
         return Train(group, full, {2, kSteps, hybrid_path, ""});
       }))
    ExpectEqual(found, expected);
}

TEST(HybridShard, LoadsTheOptimizerOfAFullStateDict) {
  const checkpoint::testing::Folder folder;
  ExpectOk(OnHosts({0, 0, 1, 1}, [&](comm::ProcessGroup& group) -> absl::Status {
    Options options = Hybrid();
    options.virtual_ranks = 0;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(testing::Scale(), &group, options));
    const auto optimizer = MakeOptimizer(OptimizerKind::kFusedSgd, net.shards());
    net(at::arange(50).mul(1.0)).backward();
    LOCKSTEP_RETURN_IF_ERROR(net.Step(*optimizer));
    const std::string path = folder.path() + "/last.pt";
    LOCKSTEP_RETURN_IF_ERROR(
        SaveFullStateDict(path, net, *optimizer, [](const auto&, const auto& whole) { return whole; }));
    const auto loaded = MakeOptimizer(OptimizerKind::kFusedSgd, net.shards());
    LOCKSTEP_RETURN_IF_ERROR(LoadFullOptimizerStateDict(path, {}, net, *loaded));
    for (auto* const both : {optimizer.get(), loaded.get()}) {
      LOCKSTEP_ASSIGN_OR_RETURN(const auto state, GetStateDict(net, *both));
      const auto& momentum =
          std::get<checkpoint::ShardedTensor>(std::find_if(state.begin(), state.end(), [](const auto& entry) {
                                                return entry.name() == "optim.state.weight.momentum_buffer";
                                              })->value);
      const int64_t begin = group.rank() % 2 == 0 ? 0 : 48, count = group.rank() % 2 == 0 ? 48 : 2;
      EXPECT_EQ(momentum.shards[0].offsets, std::vector<int64_t>{begin});
      EXPECT_TRUE(momentum.shards[0].tensor.equal(at::arange(50).to(at::kFloat).narrow(0, begin, count)));
    }
    return group.Barrier();
  }));
}

constexpr int64_t kWidth = 512, kLayers = 4, kBytes = kLayers * (kWidth + 1) * kWidth * 4;

torch::nn::Sequential Mlp() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  return net;
}

// The bytes that host 0 sends in a step, divided by the bytes of the parameters.
double SentByAStep(int hosts, Residency residency) {
  std::vector<int> host_of;
  for (int rank = 0; rank < 2 * hosts; ++rank) host_of.push_back(rank / 2);
  int64_t sent = 0;
  ExpectOk(OnHosts(host_of, [&](comm::ProcessGroup& group) -> absl::Status {
    Options options = Hybrid(residency);
    options.virtual_ranks = 0;
    options.units = {"*"};
    options.unit_bytes = kBytes / kLayers / 2;  // two chunks a unit
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Mlp(), &group, options));
    optim::SGD optimizer(net.shards(), optim::SGDOptions(0.1));
    for (int step = 0; step < 2; ++step) {
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
      const int64_t before = comm::testing::SentBytes();
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());  // no rank begins before all have looked
      net(at::ones({1, kWidth})).sum().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
      if (group.rank() == 0) sent = comm::testing::SentBytes() - before;
    }
    return group.Barrier();
  }));
  return static_cast<double>(sent) / kBytes;
}

// Parameters stay within the host.
TEST(HybridShard, AHostSendsTheBytesOfAnAllReduceOfTheGradients) {
  for (const int hosts : {2, 3}) {
    for (const Residency residency : {Residency::kSharedPages, Residency::kPaged}) {
      const double sent = SentByAStep(hosts, residency), expected = 2.0 * (hosts - 1) / hosts;
      std::cout << hosts << " hosts" << (residency == Residency::kPaged ? ", paged" : "") << ": " << sent << " P\n";
      EXPECT_GE(sent, expected);
      EXPECT_LT(sent, 1.06 * expected);
    }
  }
}

TEST(HybridShard, ARankHasItsPartOfItsHostsState) {
  for (const Residency residency : {Residency::kSharedPages, Residency::kPaged}) {
    ExpectOk(OnHosts({0, 0, 1, 1}, [&](comm::ProcessGroup& group) -> absl::Status {
      Options options = Hybrid(residency);
      options.virtual_ranks = 0;
      options.units = {"*"};
      LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Mlp(), &group, options));
      const MemoryReport report = EstimateMemory(net, /*states=*/2);
      EXPECT_EQ(report.rank, group.rank());
      EXPECT_EQ(report.shards, residency == Residency::kPaged ? kBytes / 2 : 0);
      EXPECT_NEAR(report.pages, residency == Residency::kPaged ? 0 : kBytes, 1000);
      EXPECT_NEAR(report.gradients, kBytes / 2.0, 3000);  // with flags
      EXPECT_EQ(report.optimizer, 2 * kBytes / 2);
      return group.Barrier();
    }));
  }
}

}  // namespace
}  // namespace lockstep::fsdp
