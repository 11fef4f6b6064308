// A model that a rank's memory is too small for with DistributedDataParallel trains fully sharded. Ranks are processes,
// whose private memory is limited by RLIMIT_DATA: beyond it an allocation fails.

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/rank_processes.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/memory_report.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using comm::testing::Process;
using comm::testing::RankProcesses;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 1024, kLayers = 16, kParameterBytes = kLayers * kWidth * kWidth * 4;  // 64 MiB
constexpr int64_t kLimit = 13 * kParameterBytes / 4;  // DistributedDataParallel with AdamW needs 4, two shards 2.2

torch::nn::Sequential Mlp() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  return net;
}

// From now on this process may have kLimit bytes more, and returns each freed tensor to the system. Unavailable: the
// kernel does not enforce it.
absl::Status LimitMemory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
  std::ifstream status("/proc/self/status");
  int64_t bytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmData:", 0) == 0) bytes = std::strtoll(line.c_str() + 7, nullptr, 10) * 1024;
  }
  rlimit limit = {};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = bytes + kLimit;
  if (bytes == 0 || setrlimit(RLIMIT_DATA, &limit) != 0) return absl::UnavailableError("RLIMIT_DATA cannot be set");
  void* const more = mmap(nullptr, kLimit + (1 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (more == MAP_FAILED) return absl::OkStatus();
  munmap(more, kLimit + (1 << 20));
  return absl::UnavailableError("the kernel does not enforce RLIMIT_DATA");
}

// Runs three steps. `step` makes the optimizer's.
template <typename Handle, typename Step>
absl::Status ThreeSteps(Handle& net, const Step& take_step) {
  absl::Status status;
  const absl::Status thrown = TorchStatus("", [&] {
    for (int step = 0; step < 3 && status.ok(); ++step) {
      net(at::ones({1, kWidth})).pow(2).sum().backward();
      status = take_step();
    }
  });
  return thrown.ok() ? status : thrown;
}

absl::Status TrainReplicated(comm::ProcessGroup* group) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, ddp::Wrap(Mlp(), group));
  optim::AdamW optimizer(net.parameters(), optim::AdamWOptions(1e-3).fused(true));
  return ThreeSteps(net, [&] {
    optimizer.step();
    optimizer.zero_grad();
    return absl::OkStatus();
  });
}

absl::Status TrainSharded(comm::ProcessGroup* group) {
  Options options;
  options.units = {"*"};
  options.residency = Residency::kPaged;
  LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Mlp(), group, options));
  const MemoryReport estimated = EstimateMemory(net, /*states=*/2);
  if (estimated.peak > kLimit)
    return absl::InternalError(absl::StrCat("the estimate is too high: ", estimated.ToString()));
  optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3).fused(true));
  return ThreeSteps(net, [&] { return net.Step(optimizer); });
}

// The status of rank 0.
std::string Train(absl::Status (*train)(comm::ProcessGroup*)) {
  comm::InitOptions options;
  options.backend = "gloo";
  options.timeout = absl::Seconds(30);
  RankProcesses processes(2, options, [train](const comm::InitOptions& init, const Process::Say& say) {
    const auto group = comm::InitProcessGroup(init);
    absl::Status status = group.ok() ? LimitMemory() : group.status();
    if (status.ok()) status = train(group->get());
    comm::testing::SayStatus(say, status);
    return 0;
  });
  const std::optional<Process::Line> line = processes.AwaitStatus(0);
  return line ? line->text : "nothing was said";
}

TEST(MemoryLimit, AModelThatIsTooLargeForARankTrainsFullySharded) {
  const std::string sharded = Train(TrainSharded);
  if (absl::StrContains(sharded, "UNAVAILABLE: ") && absl::StrContains(sharded, "RLIMIT_DATA")) GTEST_SKIP() << sharded;
  EXPECT_EQ(sharded, "OK");
  EXPECT_THAT(Train(TrainReplicated), HasSubstr("can't allocate memory"));
}

}  // namespace
}  // namespace lockstep::fsdp
