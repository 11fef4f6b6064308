#include "lockstep/ddp/testing/gpu_ranks.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/comm/testing/shared_gpu.h"

namespace lockstep::ddp::testing {
void OnGpuRanks(int ranks, const std::function<void(comm::ProcessGroup& group)>& body) {
  comm::InitOptions options;
  options.backend = "cuda:nccl";
  options.timeout = absl::Minutes(1);
  const auto run = [&body](const comm::InitOptions& own, const comm::testing::Process::Say&) {
    comm::testing::ShareTheGpu(own.rank);
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
