// The bytes of tensors that a paged rank has, beside the formula of README.md.

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/testing/counting_allocator.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using lockstep::testing::CountingAllocator;
using testing::OnRanks;

constexpr int64_t kWidth = 256, kLayers = 8, kLayerBytes = (kWidth + 1) * kWidth * 4;

torch::nn::Sequential Mlp() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  return net;
}

// The bytes of a rank, on average: the ranks are threads.
struct Bytes {
  int64_t after_three_steps = 0, at_end = 0;
  // The smallest peak of a step after the third. In some steps one rank is ahead, or a thread of Gloo frees a collective's
  // tensors later.
  int64_t peak = std::numeric_limits<int64_t>::max();
};

Bytes Train(int ranks, Shard shard, int whole_units, int steps) {
  CountingAllocator::Install();
  const int64_t before = CountingAllocator::bytes();
  Bytes bytes;
  const auto statuses = OnRanks(ranks, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
    Options options;
    options.units = {"*"};
    options.shard = shard;
    options.whole_units = whole_units;
    options.residency = Residency::kPaged;
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Mlp(), &group, options));
    optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3).fused(true));
    for (int step = 1; step <= steps; ++step) {
      // As behind an embedding, the first layer computes a gradient of its input.
      net(at::ones({1, kWidth}).requires_grad_()).sum().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
      if (group.rank() == 0) {
        bytes.at_end = (CountingAllocator::bytes() - before) / group.size();
        if (step == 3) bytes.after_three_steps = bytes.at_end;
        if (step > 3) bytes.peak = std::min(bytes.peak, (CountingAllocator::peak() - before) / group.size());
        CountingAllocator::Restart();
      }
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  return bytes;
}

TEST(PagedMemory, ARankHasItsPartOfTheStateAndAFewUnits) {
  const int64_t parameters = kLayers * kLayerBytes;
  for (const Shard shard : {Shard::kElements, Shard::kRows}) {
    for (const int whole_units : {1, 2}) {
      const int ranks = 2 * whole_units;
      const Bytes bytes = Train(ranks, shard, whole_units, 20);
      const int64_t state = 4 * parameters / ranks;  // parameters, gradients, and two states of AdamW
      const double units = static_cast<double>(bytes.peak - state) / kLayerBytes;
      std::cout << ranks << " ranks, whole_units " << whole_units << (shard == Shard::kRows ? ", rows" : "")
                << ": at peak (P + G + O) / W and " << units << " units; after a step "
                << static_cast<double>(bytes.at_end - state) / kLayerBytes << " units\n";
      // Rows are gathered into one more buffer, and a thread of Gloo may still hold the last gather's.
      EXPECT_LT(units, whole_units + (shard == Shard::kRows ? 3 : 1) + 0.2);
    }
  }
}

TEST(PagedMemory, StepsLeakNothing) {
  const Bytes bytes = Train(2, Shard::kElements, 2, 100);
  // Threads of Gloo may free the last collective's tensors later.
  EXPECT_NEAR(bytes.at_end, bytes.after_three_steps, 2000);
}

}  // namespace
}  // namespace lockstep::fsdp
