#include "lockstep/comm/tree_sum/tree_scatter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/hierarchical/testing/simulated_hosts.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/testing/init_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNumel = 1000;

// Numbers of very different sizes, so that another order gives other bits.
at::Tensor Leaf(int leaf, at::ScalarType dtype) {
  const at::Tensor seed = at::arange(kNumel, at::kDouble).add(1.37 * leaf + 1);
  return seed.mul(12.9898).sin().mul(seed.mul(78.233).sin().mul(8).exp2()).to(dtype);
}

// The definition, in ATen.
at::Tensor Reference(int begin, int end, at::ScalarType dtype) {
  if (end - begin == 1) return Leaf(begin, dtype);
  int p = 1;
  while (2 * p < end - begin) p *= 2;
  return Reference(begin, begin + p, dtype) + Reference(begin + p, end, dtype);
}

// Slices of uneven sizes; the last rank's is empty if there are several.
std::vector<int64_t> BoundsOf(int ranks) {
  std::vector<int64_t> bounds = {0};
  for (int rank = 1; rank < ranks; ++rank) bounds.push_back(kNumel * rank / ranks * (rank % 2 + 1) / 2 / 16 * 16);
  std::sort(bounds.begin(), bounds.end());
  if (ranks > 1) bounds.back() = kNumel;
  bounds.push_back(kNumel);
  return bounds;
}

absl::Status Scatter(ProcessGroup& group, const TreeScatter& scatter, at::ScalarType dtype, TreeScatter::Sum* sum) {
  const absl::StatusOr<at::Tensor> leaf = group.AllocateShared({kNumel}, dtype);
  for (int round = 0; round < scatter.rounds(); ++round) {
    const int own = scatter.LeafOf(round, group.rank());
    if (own >= 0) leaf->copy_(Leaf(own, dtype));
    LOCKSTEP_RETURN_IF_ERROR(scatter.Start(round, *leaf, sum));
    LOCKSTEP_RETURN_IF_ERROR(scatter.Wait(sum));
  }
  return absl::OkStatus();
}

class TreeScatterTest : public ::testing::TestWithParam<std::string> {
 protected:
  void OnRanks(int ranks, const std::function<absl::Status(ProcessGroup& group)>& body) const {
    InitOptions options;
    options.backend = GetParam();
    for (const absl::Status& result : testing::InitRanks(options, ranks, body)) EXPECT_EQ(result, absl::OkStatus());
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, TreeScatterTest, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(TreeScatterTest, EachRankHasItsSliceOfTheTreesSumWhoeverBringsTheLeaves) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    OnRanks(ranks, [&](ProcessGroup& group) -> absl::Status {
      const std::vector<int64_t> bounds = BoundsOf(ranks);
      for (const int leaves : {ranks, ranks + 1, 8, 13}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
          const int64_t begin = bounds[group.rank()], own = bounds[group.rank() + 1] - begin;
          const TreeScatter scatter(&group, leaves);
          TreeScatter::Sum sum(at::empty({own}, dtype), bounds);
          for (int step = 0; step < 2; ++step) {
            LOCKSTEP_RETURN_IF_ERROR(Scatter(group, scatter, dtype, &sum));
            EXPECT_TRUE(sum.result().equal(Reference(0, leaves, dtype).div(leaves).narrow(0, begin, own)))
                << leaves << " leaves on " << ranks << " ranks, " << c10::toString(dtype) << ", step " << step;
          }
        }
      }
      return absl::OkStatus();
    });
  }
}

TEST_P(TreeScatterTest, SeveralSumsMayBeUnderWay) {
  OnRanks(3, [&](ProcessGroup& group) -> absl::Status {
    const TreeScatter scatter(&group, 3);
    std::vector<TreeScatter::Sum> sums;
    std::vector<at::Tensor> leaves;
    const std::vector<int64_t> bounds = {0, 320, 640, kNumel};
    const int64_t begin = bounds[group.rank()], own = bounds[group.rank() + 1] - begin;
    for (int i = 0; i < 4; ++i) {
      sums.emplace_back(at::empty({own}), bounds);
      leaves.push_back(group.AllocateShared({kNumel})->copy_(Leaf(group.rank(), at::kFloat)).mul_(1 << i));
      LOCKSTEP_RETURN_IF_ERROR(scatter.Start(0, leaves.back(), &sums.back()));
    }
    for (int i = 0; i < 4; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(scatter.Wait(&sums[i]));
      EXPECT_TRUE(TreeScatter::IsCompleted(sums[i]));
      EXPECT_TRUE(sums[i].result().equal(Reference(0, 3, at::kFloat).mul(1 << i).div(3).narrow(0, begin, own)));
    }
    return absl::OkStatus();
  });
}

TEST_P(TreeScatterTest, ALeafOfAnotherSizeDtypeOrDeviceIsAnError) {
  OnRanks(2, [&](ProcessGroup& group) -> absl::Status {
    const TreeScatter scatter(&group, 2);
    TreeScatter::Sum sum(at::empty({500}), {0, 500, kNumel});
    EXPECT_THAT(std::string(scatter.Start(0, at::zeros({999}), &sum).message()),
                HasSubstr("expected a contiguous leaf of 1000 elements of Float on cpu, found 999 of Float on cpu"));
    EXPECT_THAT(std::string(scatter.Start(0, at::zeros({kNumel}, at::kDouble), &sum).message()),
                HasSubstr("found 1000 of Double"));
    EXPECT_THAT(std::string(scatter.Start(0, at::empty({kNumel}, at::kMeta), &sum).message()),
                HasSubstr("on cpu, found 1000 of Float on meta"));
    return group.Barrier();
  });
}

// Runs body(group) on ranks whose identities say that rank r runs on host hosts[r].
absl::Status OnHosts(const std::vector<int>& hosts, const std::function<absl::Status(ProcessGroup& group)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  return hierarchical::testing::RunOn(hosts, [&](c10d::Backend& backend) {
    const auto owner = c10::intrusive_ptr<c10d::Backend>::reclaim_copy(&backend);
    const auto group = internal::GroupAccess::FromBackends(store, {{c10::DeviceType::CPU, owner}}, absl::Seconds(10));
    ThrowIfError(body(*group));
    ThrowIfError(group->Barrier());
  });
}

// Even and uneven hosts. The ranks of a host are a node of the tree, or several.
const std::vector<std::vector<int>> kLayouts = {{0, 0, 1, 1},       {0, 1, 0, 1}, {0, 1, 1, 0},
                                                {0, 0, 1, 1, 2, 2}, {0, 0, 0, 1}, {0, 0, 0, 1, 1, 1},
                                                {0, 0, 1, 2, 1, 2}, {0, 1, 1}};

TEST(TreeScatterOnHosts, EachRankHasItsSliceOfTheTreesSumWhereverTheRanksAre) {
  for (const std::vector<int>& hosts : kLayouts) {
    const absl::Status status = OnHosts(hosts, [&](ProcessGroup& group) -> absl::Status {
      const std::vector<int64_t> bounds = BoundsOf(group.size());
      const int64_t begin = bounds[group.rank()], own = bounds[group.rank() + 1] - begin;
      for (const int leaves : {group.size(), group.size() + 1, 8, 13}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
          const TreeScatter scatter(&group, leaves);
          TreeScatter::Sum sum(at::empty({own}, dtype), bounds);
          LOCKSTEP_RETURN_IF_ERROR(Scatter(group, scatter, dtype, &sum));
          EXPECT_TRUE(sum.result().equal(Reference(0, leaves, dtype).div(leaves).narrow(0, begin, own)))
              << leaves << " leaves, " << c10::toString(dtype) << ", hosts " << absl::StrJoin(hosts, ", ");
        }
      }
      return absl::OkStatus();
    });
    EXPECT_EQ(status, absl::OkStatus());
  }
}

TEST(TreeScatterOnHosts, SumsInPiecesAndAllReducesMayBeUnderWayAtOnce) {
  for (const std::vector<int>& hosts : {kLayouts[0], kLayouts[1], kLayouts[3]}) {
    const absl::Status status = OnHosts(hosts, [&](ProcessGroup& group) -> absl::Status {
      const int ranks = group.size();
      const int64_t numel = 1 << 20, own = group.rank() == 0 ? numel - 2000 * (ranks - 1) : 2000;
      std::vector<int64_t> bounds = {0};
      for (int rank = 1; rank <= ranks; ++rank) bounds.push_back(numel - 2000 * (ranks - rank));
      const TreeScatter scatter(&group, ranks);
      std::vector<TreeScatter::Sum> sums;
      std::vector<at::Tensor> leaves, reduced;
      std::vector<Work> works;
      for (int i = 0; i < 4; ++i) {
        sums.emplace_back(at::empty({own}), bounds);
        reduced.push_back(at::full({100000}, 1.0F));
        leaves.push_back(group.AllocateShared({numel})->copy_(at::arange(numel)).add_(1000 * group.rank() * i));
        LOCKSTEP_RETURN_IF_ERROR(scatter.Start(0, leaves.back(), &sums.back()));
        works.push_back(group.AllReduceAsync(reduced.back()));
      }
      while (group.rank() == 1 && !TreeScatter::IsCompleted(sums[3])) std::this_thread::yield();
      for (int i = 0; i < 4; ++i) {
        const int which = group.rank() == 2 ? 3 - i : i;
        LOCKSTEP_RETURN_IF_ERROR(works[which].Wait());
        LOCKSTEP_RETURN_IF_ERROR(scatter.Wait(&sums[which]));
        const at::Tensor expected = at::arange(numel).mul(ranks).add(500 * ranks * (ranks - 1) * which).div(ranks);
        EXPECT_TRUE(sums[which].result().equal(expected.narrow(0, bounds[group.rank()], own).to(at::kFloat))) << which;
        EXPECT_TRUE(reduced[which].equal(at::full({100000}, static_cast<float>(ranks))));
      }
      return absl::OkStatus();
    });
    EXPECT_EQ(status, absl::OkStatus());
  }
}

// Every host's calls fit together, and all messages have 4000 bytes.
TEST(TreeScatterOnHosts, AnAllReduceOfTheSameSizeOnAnotherHostIsAnError) {
  const absl::Status status = OnHosts(kLayouts[0], [](ProcessGroup& group) -> absl::Status {
    const at::Tensor leaf = group.AllocateShared({kNumel})->fill_(1);
    if (group.rank() >= 2) return group.AllReduce(leaf);
    const TreeScatter scatter(&group, 4);
    TreeScatter::Sum sum(at::empty({group.rank() == 0 ? kNumel : 0}), {0, kNumel, kNumel, kNumel, kNumel});
    LOCKSTEP_RETURN_IF_ERROR(scatter.Start(0, leaf, &sum));
    return scatter.Wait(&sum);
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 2 sent piece 0 of all_reduce #0 (4000 bytes; float32 [1000], sum); expected piece 0 of "
                        "tree_scatter #0 (4000 bytes; float32 [1000], sum)"));
}

TEST(TreeScatterOnHosts, ALeafThatTheHostDoesNotShareIsAnError) {
  const absl::Status status = OnHosts(kLayouts[0], [](ProcessGroup& group) -> absl::Status {
    const TreeScatter scatter(&group, 4);
    TreeScatter::Sum sum(at::empty({kNumel / 4}), {0, 250, 500, 750, kNumel});
    LOCKSTEP_RETURN_IF_ERROR(scatter.Start(0, at::ones({kNumel}), &sum));
    return scatter.Wait(&sum);
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not in the memory that the ranks share"));
}

TEST(AllocateCommon, IsTheSameMemoryOnAllRanks) {
  InitOptions options;
  options.backend = "shm";
  const auto results = testing::InitRanks(options, 3, [](ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor memory, internal::GroupAccess::AllocateCommon(group, 12));
    const at::Tensor numbers = memory.view(at::kInt);
    numbers.narrow(0, group.rank(), 1).fill_(group.rank() + 7);
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    EXPECT_TRUE(numbers.equal(at::arange(7, 10, at::kInt))) << numbers;
    return group.Barrier();
  });
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
}

TEST(AllocateCommon, NeedsABackendThatSharesMemory) {
  InitOptions options;
  options.backend = "gloo";
  const auto results = testing::InitRanks(options, 2, [](ProcessGroup& group) -> absl::Status {
    EXPECT_THAT(std::string(internal::GroupAccess::AllocateCommon(group, 12).status().message()),
                HasSubstr("their backend shares no memory"));
    return group.Barrier();
  });
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::comm
