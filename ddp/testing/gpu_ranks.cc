#include "lockstep/ddp/testing/gpu_ranks.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::ddp::testing {
namespace {

// NCCL refuses two ranks on one GPU of one host (from 2.31 on NCCL_MULTI_RANK_GPU_ENABLE lets it). If each rank has a
// different host name, the ranks use sockets instead, which work within a host too.
void ShareTheGpu(int rank) {
  setenv("NCCL_HOSTID", absl::StrCat("rank ", rank).c_str(), /*overwrite=*/1);
  setenv("NCCL_NET", "Socket", /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/1);
}

}  // namespace

void OnGpuRanks(int ranks, const std::function<void(comm::ProcessGroup& group)>& body) {
  comm::InitOptions options;
  options.backend = "cuda:nccl";
  options.timeout = absl::Minutes(1);
  const auto run = [&body](const comm::InitOptions& own, const comm::testing::Process::Say&) {
    ShareTheGpu(own.rank);
    const absl::Status status = TorchStatus("", [&] {
      const auto group = comm::InitProcessGroup(own);
      ThrowIfError(group.status());
      body(**group);
    });
    EXPECT_EQ(status, absl::OkStatus());
    return ::testing::Test::HasFailure() ? 1 : 0;
  };
  comm::testing::RankProcesses processes(ranks, options, run);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(processes[rank].Wait(absl::Minutes(2)), 0) << "rank " << rank;
}

Mlp SeededMlpOnGpu(uint64_t seed) {
  Mlp net = SeededMlp(seed);
  net->to(at::kCUDA);
  return net;
}

at::Tensor BatchOnGpu(int64_t rows, int64_t columns, int step) { return Batch(rows, columns, step).to(at::kCUDA); }

}  // namespace lockstep::ddp::testing
