// The bytes of tensors that a paged rank has, beside the formula of README.md.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using testing::OnRanks;

// Counts the bytes of the tensors that its thread allocates and frees.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now() const { return now_; }
  int64_t peak() const { return peak_; }
  void ForgetPeak() { peak_ = now_; }

 private:
  int64_t now_ = 0, peak_ = 0;
};

constexpr int64_t kWidth = 256, kLayers = 12, kLayerBytes = (kWidth + 1) * kWidth * 4;

torch::nn::Sequential Mlp() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  return net;
}

struct Bytes {
  int64_t after_ten_steps = 0, peak = 0, at_end = 0;
};

Bytes Train(int ranks, Shard shard, int whole_units, int steps) {
  std::vector<Bytes> bytes(ranks);
  const auto statuses = OnRanks(ranks, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
    const auto meter = std::make_shared<Meter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    Options options;
    options.units = {"*"};
    options.shard = shard;
    options.whole_units = whole_units;
    options.residency = Residency::kPaged;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Mlp(), &group, options));
    optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3).fused(true));
    for (int step = 0; step < steps; ++step) {
      if (step == 5) meter->ForgetPeak();
      net(at::ones({1, kWidth})).sum().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      if (step == 9) bytes[group.rank()].after_ten_steps = meter->now();
    }
    bytes[group.rank()].peak = meter->peak();
    bytes[group.rank()].at_end = meter->now();
    return group.Barrier();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  return bytes[0];
}

TEST(PagedMemory, ARankHasItsPartOfTheStateAndAFewUnits) {
  const int64_t parameters = kLayers * kLayerBytes;
  for (const Shard shard : {Shard::kElements, Shard::kRows}) {
    for (const int whole_units : {1, 2}) {
      const int ranks = 2 * whole_units;
      const Bytes bytes = Train(ranks, shard, whole_units, 12);
      const int64_t state = 4 * parameters / ranks;  // parameters, gradients, and two states of AdamW
      const double units = static_cast<double>(bytes.peak - state) / kLayerBytes;
      std::cout << ranks << " ranks, whole_units " << whole_units << ": at peak (P + G + O) / W and " << units
                << " units; after a step " << static_cast<double>(bytes.at_end - state) / kLayerBytes << " units\n";
      EXPECT_LT(units, whole_units + 1.2);
      EXPECT_LT(bytes.peak, 4 * parameters * 3 / 4) << "less than a rank of DistributedDataParallel, by far";
    }
  }
}

TEST(PagedMemory, StepsLeakNothing) {
  const Bytes bytes = Train(2, Shard::kElements, 2, 300);
  EXPECT_EQ(bytes.at_end, bytes.after_ten_steps);
}

}  // namespace
}  // namespace lockstep::fsdp
