// Ranks on two hosts with two ranks each: threads in network namespaces.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/network_hosts.h"

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

// The last rank comes `late` after the others.
void RunOnTwoHosts(const std::string& backend, const std::function<absl::Status(ProcessGroup&)>& body,
                   absl::Duration late = absl::ZeroDuration()) {
  const auto hosts = testing::NetworkHosts::Create(2);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  std::vector<std::unique_ptr<ProcessGroup>> groups(kRanks);
  std::vector<absl::Status> results(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      (*hosts)->Run(rank / 2, [&] {
        InitOptions options;
        options.backend = backend;
        options.init_method = absl::StrCat("tcp://", (*hosts)->Address(0), ":29500");
        options.rank = rank;
        options.world_size = kRanks;
        options.timeout = absl::Seconds(30);
        options.debug = Debug::kOff;
        if (rank == kRanks - 1) absl::SleepFor(late);
        auto group = InitProcessGroup(options);
        results[rank] = group.ok() ? body(**group) : group.status();
        if (group.ok()) groups[rank] = *std::move(group);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
}

TEST(Network, HierarchicalReducesOverTwoHosts) { RunOnTwoHosts("hierarchical", UseTheGroup); }

TEST(Network, HierarchicalWritesNothingToStandardErrorWhileRanksWaitForALateOne) {
  ::testing::internal::CaptureStderr();
  RunOnTwoHosts("hierarchical", UseTheGroup, /*late=*/absl::Milliseconds(1200));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Network, AutoTakesWhatTheHostsAllow) {
  RunOnTwoHosts("auto", [](ProcessGroup& group) {
    LOCKSTEP_RETURN_IF_ERROR(UseTheGroup(group));
    return UseTheHostsGroup(group);
  });
}

}  // namespace
}  // namespace lockstep::comm
