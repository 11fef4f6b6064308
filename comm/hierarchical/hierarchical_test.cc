// Ranks as threads whose identities say that they run on several hosts: what crosses them goes over Gloo.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/hierarchical/internal/topology.h"

namespace lockstep::comm::hierarchical {
namespace {

using internal::Topology;
using internal::TopologyOf;

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// hosts[r] is the host of rank r.
std::vector<RankIdentity> RanksOn(const std::vector<int>& hosts) {
  std::vector<RankIdentity> ranks;
  for (const int host : hosts) {
    RankIdentity identity;
    identity.rank = static_cast<int>(ranks.size());
    identity.host = identity.boot_id = absl::StrCat("host", host);
    ranks.push_back(identity);
  }
  return ranks;
}

BackendContext ContextOf(const std::vector<int>& hosts, int rank) {
  BackendContext context;
  context.rank = rank;
  context.size = static_cast<int>(hosts.size());
  context.timeout = absl::Seconds(30);
  context.master_addr = "127.0.0.1";
  context.group = "world";
  context.ranks = RanksOn(hosts);
  return context;
}

BackendInfo Hierarchical() { return *FindBackend("hierarchical"); }

absl::Status RunOn(const std::vector<int>& hosts, const std::function<void(c10d::Backend&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<absl::Status> results(hosts.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = TorchStatus(absl::StrCat("rank ", rank), [&] {
        BackendContext context = ContextOf(hosts, rank);
        context.store = store;
        const absl::StatusOr<BackendPtr> backend = Hierarchical().create(context);
        ThrowIfError(backend.status());
        body(**backend);
        (*backend)->barrier()->wait();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    if (!result.ok()) return result;
  }
  return absl::OkStatus();
}

c10::intrusive_ptr<c10d::Work> AllReduce(c10d::Backend& backend, at::Tensor& tensor, c10d::ReduceOp op) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  return backend.allreduce(tensors, options);
}

const std::vector<std::vector<int>> kLayouts = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1}};

TEST(Hierarchical, SumsOverEveryLayout) {
  for (const std::vector<int>& hosts : kLayouts) {
    const auto size = static_cast<int64_t>(hosts.size());
    EXPECT_EQ(RunOn(hosts,
                    [&](c10d::Backend& backend) {
                      for (const int64_t count : {0, 1, 7, 1000, 200003}) {
                        const at::Tensor base = at::arange(count, at::kFloat);
                        at::Tensor sum = base + backend.getRank(), average = sum.clone(), largest = sum.clone();
                        AllReduce(backend, sum, c10d::ReduceOp::SUM)->wait();
                        AllReduce(backend, average, c10d::ReduceOp::AVG)->wait();
                        AllReduce(backend, largest, c10d::ReduceOp::MAX)->wait();
                        EXPECT_TRUE(at::equal(sum, base * size + size * (size - 1) / 2)) << count;
                        EXPECT_TRUE(at::equal(average, sum / size)) << count;
                        EXPECT_TRUE(at::equal(largest, base + (size - 1))) << count;
                      }
                    }),
              absl::OkStatus());
  }
}

TEST(Hierarchical, EveryRankHasTheSameBits) {
  std::vector<at::Tensor> sums(4);
  EXPECT_EQ(RunOn(kLayouts[0],
                  [&](c10d::Backend& backend) {
                    at::Tensor x =
                        (at::arange(100001, at::kDouble) + backend.getRank() + 1).reciprocal().to(at::kFloat);
                    AllReduce(backend, x, c10d::ReduceOp::SUM)->wait();
                    sums[backend.getRank()] = x;
                  }),
            absl::OkStatus());
  for (const at::Tensor& sum : sums) EXPECT_TRUE(at::equal(sum, sums[0]));
}

TEST(Hierarchical, CallsUnderWayMayBeWaitedForInAnyOrder) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    std::vector<at::Tensor> tensors;
                    std::vector<c10::intrusive_ptr<c10d::Work>> works;
                    for (int i = 0; i < 6; ++i) {
                      tensors.push_back(at::full({5000 + i}, i));
                      works.push_back(AllReduce(backend, tensors.back(), c10d::ReduceOp::SUM));
                      if (backend.getRank() == 1) works.back()->wait();  // one call at a time
                    }
                    if (backend.getRank() == 2) std::reverse(works.begin(), works.end());
                    for (const auto& work : works) {
                      while (backend.getRank() == 3 && !work->isCompleted()) std::this_thread::yield();
                      work->wait();
                    }
                    for (int i = 0; i < 6; ++i) EXPECT_TRUE(at::equal(tensors[i], at::full({5000 + i}, 4 * i)));
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, TheOtherCollectivesWork) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    std::vector<at::Tensor> x = {at::full({3}, backend.getRank())};
                    c10d::BroadcastOptions from_2;
                    from_2.rootRank = 2;
                    backend.broadcast(x, from_2)->wait();
                    EXPECT_TRUE(at::equal(x[0], at::full({3}, 2)));
                    at::Tensor mine = at::full({2}, backend.getRank()), all = at::zeros({8}, at::kLong);
                    backend._allgather_base(all, mine)->wait();
                    EXPECT_TRUE(at::equal(all, at::arange(8).floor_divide(2)));
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, ADeadlineEndsAWait) {
  EXPECT_EQ(RunOn(kLayouts[0],
                  [](c10d::Backend& backend) {
                    at::Tensor x = at::ones({10});
                    if (backend.getRank() == 3) return;
                    const auto work = AllReduce(backend, x, c10d::ReduceOp::SUM);
                    const absl::Status status = TorchStatus("", [&] { work->wait(std::chrono::milliseconds(200)); });
                    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
                  }),
            absl::OkStatus());
}

TEST(Hierarchical, IsForSeveralHostsWithSeveralRanks) {
  EXPECT_EQ(Hierarchical().usable(ContextOf({0, 0}, 0)).message(), "hierarchical is for ranks on several hosts");
  EXPECT_EQ(Hierarchical().usable(ContextOf({0, 1}, 0)).message(), "hierarchical is for hosts with several ranks");
  EXPECT_EQ(Hierarchical().usable(ContextOf({0, 1, 1}, 0)), absl::OkStatus());
  EXPECT_FALSE(Hierarchical().usable(ContextOf({}, 0)).ok());
}

TEST(Topology, GroupsRanksByHost) {
  const Topology topology = TopologyOf(RanksOn({7, 3, 7, 3, 3}), 4);
  EXPECT_EQ(topology.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(topology.host, 1);
  EXPECT_EQ(topology.local_rank, 2);
  EXPECT_FALSE(topology.even());
  EXPECT_EQ(topology.column(), (std::vector<int>{0, 1}));
  EXPECT_EQ(TopologyOf(RanksOn({7, 3, 7, 3}), 3).column(), (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace lockstep::comm::hierarchical
