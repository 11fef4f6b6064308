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

// Each piece is on two ranks, as an elastic::ShardedModel has it.
internal::KeptShards KeptShardsOf(const torch::nn::Sequential& net, const comm::ProcessGroup& group) {
  constexpr int64_t kPiece = 1 << 14;
  internal::KeptShards kept;
  int next = 0;
  for (const auto& item : net->named_parameters()) {
    const at::Tensor flat = item.value().detach().flatten();
    for (int64_t begin = 0; begin < flat.numel(); begin += kPiece, ++next) {
      const int owner = next % group.size(), second = (next + 1) % group.size();
      const bool has = group.rank() == owner || group.rank() == second;
      const int64_t end = std::min(begin + kPiece, flat.numel());
      const at::Tensor piece = has ? flat.slice(0, begin, end).clone() : at::empty({0});
      kept.shards.push_back({item.key(), begin, end, piece.set_requires_grad(true), owner, second});
    }
  }
  return kept;
}

// The bytes of a rank, on average: the ranks are threads.
struct Bytes {
  int64_t after_three_steps = 0, at_end = 0;
  // The smallest peak of a step after the third. In some steps one rank is ahead, or a thread of Gloo frees a collective's
  // tensors later.
  int64_t peak = std::numeric_limits<int64_t>::max();
};

Bytes Train(int ranks, Shard shard, int whole_units, int steps, bool keeps = false) {
  CountingAllocator::Install();
  const int64_t before = CountingAllocator::bytes();
  Bytes bytes;
  const auto statuses = OnRanks(ranks, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
    Options options;
    options.units = {"*"};
    options.shard = shard;
    options.whole_units = whole_units;
    options.residency = Residency::kPaged;
    const torch::nn::Sequential mlp = Mlp();
    internal::KeptShards kept;
    if (keeps) kept = KeptShardsOf(mlp, group);
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(mlp, &group, options, keeps ? &kept : nullptr));
    optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3).fused(true));
    for (int step = 1; step <= steps; ++step) {
      // As behind an embedding, the first layer computes a gradient of its input.
      net(at::ones({1, kWidth}).requires_grad_()).sum().backward();
      if (keeps) {
        LOCKSTEP_RETURN_IF_ERROR(kept.prepare_step());
        optimizer.step();
        LOCKSTEP_RETURN_IF_ERROR(kept.publish());
      } else {
        LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      }
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

// The buffers have each gradient twice.
TEST(PagedMemory, ARankHasItsPartOfWhatIsOnTwoRanks) {
  const int64_t parameters = kLayers * kLayerBytes;
  for (const int ranks : {2, 4}) {
    const Bytes bytes = Train(ranks, Shard::kElements, /*whole_units=*/2, 20, /*keeps=*/true);
    const int64_t state = 2 * 4 * parameters / ranks;
    const double units = static_cast<double>(bytes.peak - state) / kLayerBytes;
    std::cout << ranks << " ranks: at peak 2 (P + G + O) / W and " << units << " units; after a step "
              << static_cast<double>(bytes.at_end - state) / kLayerBytes << " units\n";
    // A thread of Gloo may still hold the share that this rank has packed for a gather.
    EXPECT_LT(units, 2 * 4 + 1.0 / ranks + 0.2);
  }
}

TEST(PagedMemory, StepsLeakNothing) {
  const Bytes bytes = Train(2, Shard::kElements, 2, 100);
  // Threads of Gloo may free the last collective's tensors later.
  EXPECT_NEAR(bytes.at_end, bytes.after_three_steps, 2000);
}

}  // namespace
}  // namespace lockstep::fsdp
