// Ranks on two hosts with two ranks each, or on others: threads in network namespaces.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/comm/tree_sum/tree_scatter.h"

namespace lockstep::comm {
namespace {

constexpr int kRanks = 4;

absl::Status UseTheGroup(ProcessGroup& group) {
  const at::Tensor base = at::arange(100003, at::kFloat);
  at::Tensor sum = base + group.rank();
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(sum));
  EXPECT_TRUE(at::equal(sum, base * kRanks + kRanks * (kRanks - 1) / 2));
  at::Tensor all = at::zeros({kRanks}, at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, at::full({1}, group.rank(), at::kLong)));
  EXPECT_TRUE(at::equal(all, at::arange(kRanks)));
  return group.Barrier();
}

// The ranks of a host, over its memory.
absl::Status UseTheHostsGroup(ProcessGroup& group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto host, group.NewGroupByHost());
  EXPECT_EQ(host->size(), 2);
  at::Tensor local = at::full({3}, group.rank());
  LOCKSTEP_RETURN_IF_ERROR(host->AllReduce(local));
  EXPECT_EQ(local[0].item<int64_t>(), group.rank() < 2 ? 0 + 1 : 2 + 3);
  return host->Barrier();
}

struct Setting {
  std::vector<int> host_of = {0, 0, 1, 1};     // of each rank
  absl::Duration late = absl::ZeroDuration();  // the last rank comes so long after the others
  bool small_buffers = false;                  // the hosts' systems buffer 8 KiB of a connection
};

// For the host of the calling thread, and sockets that are made from now on.
void MakeBuffersSmall() {
  for (const char* const name : {"rmem", "wmem"}) {
    std::ofstream file(absl::StrCat("/proc/sys/net/ipv4/tcp_", name));
    EXPECT_TRUE(file << "4096 8192 8192" << std::flush) << name;
  }
}

void RunOnHosts(const std::string& backend, const std::function<absl::Status(ProcessGroup&)>& body,
                const Setting& setting = {}) {
  const int count = *std::max_element(setting.host_of.begin(), setting.host_of.end()) + 1;
  const auto hosts = testing::NetworkHosts::Create(count);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  for (int host = 0; setting.small_buffers && host < count; ++host) (*hosts)->Run(host, MakeBuffersSmall);
  InitOptions options;
  options.backend = backend;
  options.timeout = absl::Seconds(30);
  options.debug = Debug::kOff;
  const auto before = [&](int rank) {
    if (rank == kRanks - 1) absl::SleepFor(setting.late);
  };
  for (const absl::Status& result : testing::InitRanksOn(**hosts, setting.host_of, options, body, before))
    EXPECT_EQ(result, absl::OkStatus());
}

TEST(Network, HierarchicalReducesOverTwoHosts) { RunOnHosts("hierarchical", UseTheGroup); }

TEST(Network, HierarchicalWritesNothingToStandardErrorWhileRanksWaitForALateOne) {
  Setting setting;
  setting.late = absl::Milliseconds(1200);
  ::testing::internal::CaptureStderr();
  RunOnHosts("hierarchical", UseTheGroup, setting);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// Runs `body` on every rank, which calls `start` before its collective. Returns the bytes that host 0 sends from then
// on.
int64_t SentBy(const std::function<absl::Status(ProcessGroup&, const std::function<absl::Status()>& start)>& body,
               const Setting& setting) {
  int64_t sent = 0;
  const auto counted = [&](ProcessGroup& group) -> absl::Status {
    int64_t before = 0;
    const auto start = [&]() -> absl::Status {
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
      before = testing::SentBytes();
      return group.Barrier();  // no rank begins before all have looked
    };
    LOCKSTEP_RETURN_IF_ERROR(body(group, start));
    LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    if (group.rank() == 0) sent = testing::SentBytes() - before;
    return group.Barrier();
  };
  RunOnHosts("hierarchical", counted, setting);
  return sent;
}

constexpr int64_t kNumel = 2 << 20;

// Runs a tree_scatter of one leaf a rank. Returns the bytes that host 0 sends, divided by the bytes of a leaf.
double SentByATreeScatter(const Setting& setting) {
  const auto body = [](ProcessGroup& group, const std::function<absl::Status()>& start) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor leaf, group.AllocateShared({kNumel}));
    leaf.fill_(group.rank());
    const TreeScatter scatter(&group, kRanks);
    TreeScatter::Sum sum(at::empty({kNumel / kRanks}), {0, kNumel / 4, kNumel / 2, kNumel / 4 * 3, kNumel});
    LOCKSTEP_RETURN_IF_ERROR(start());
    LOCKSTEP_RETURN_IF_ERROR(scatter.Start(0, leaf, &sum));
    LOCKSTEP_RETURN_IF_ERROR(scatter.Wait(&sum));
    EXPECT_TRUE(at::equal(sum.result(), at::full({kNumel / kRanks}, 1.5F)));
    return absl::OkStatus();
  };
  return static_cast<double>(SentBy(body, setting)) / (kNumel * 4);
}

// Half of the elements belong to the other host's ranks.
TEST(Network, ATreeScatterSendsEachHostsSumOnce) {
  const double sent = SentByATreeScatter({});
  EXPECT_GE(sent, 0.5);
  EXPECT_LT(sent, 0.6);
}

// The two ranks of a host have no node of the tree in common, so both leaves are sent.
TEST(Network, ATreeScatterSendsNoMoreThanTheLeaves) {
  Setting setting;
  setting.host_of = {0, 1, 0, 1};
  const double sent = SentByATreeScatter(setting);
  EXPECT_GE(sent, 1.0);
  EXPECT_LT(sent, 1.1);
}

// A message has 256 KiB.
TEST(Network, ATreeScatterReceivesWhileItSends) {
  Setting setting;
  setting.small_buffers = true;
  EXPECT_GE(SentByATreeScatter(setting), 0.5);
}

// Runs an all_gather. Returns the bytes that host 0 sends, divided by the bytes of all inputs.
double SentByAnAllGather(const Setting& setting) {
  const auto body = [](ProcessGroup& group, const std::function<absl::Status()>& start) -> absl::Status {
    const at::Tensor own = at::full({kNumel / kRanks}, group.rank(), at::kFloat), all = at::empty({kNumel});
    LOCKSTEP_RETURN_IF_ERROR(start());
    LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, own));
    EXPECT_TRUE(at::equal(all, at::arange(kRanks, at::kFloat).repeat_interleave(kNumel / kRanks)));
    return absl::OkStatus();
  };
  return static_cast<double>(SentBy(body, setting)) / (kNumel * 4);
}

// The other host lacks half of the elements.
TEST(Network, AnAllGatherSendsEachInputToEachHostOnce) {
  for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 0, 1}}) {
    Setting setting;
    setting.host_of = host_of;
    const double sent = SentByAnAllGather(setting);
    EXPECT_GE(sent, 0.5) << host_of[1];
    EXPECT_LT(sent, 0.6) << host_of[1];
  }
}

// A message has 512 KiB.
TEST(Network, AnAllGatherReceivesWhileItSends) {
  Setting setting;
  setting.small_buffers = true;
  EXPECT_GE(SentByAnAllGather(setting), 0.5);
}

TEST(Network, AnAllReduceReceivesWhileItSends) {
  for (const std::vector<int>& host_of : {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 0, 1, 2}}) {
    Setting setting;
    setting.host_of = host_of;
    setting.small_buffers = true;
    RunOnHosts("hierarchical", UseTheGroup, setting);
  }
}

TEST(Network, AutoTakesWhatTheHostsAllow) {
  RunOnHosts("auto", [](ProcessGroup& group) {
    LOCKSTEP_RETURN_IF_ERROR(UseTheGroup(group));
    return UseTheHostsGroup(group);
  });
}

}  // namespace
}  // namespace lockstep::comm
