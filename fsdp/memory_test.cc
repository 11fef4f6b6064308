// The bytes of tensors that a paged rank has, beside the formula of README.md and the estimate of memory_report.h.

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status.h"
#include "lockstep/base/testing/counting_allocator.h"
#include "lockstep/fsdp/fully_sharded.h"
#include "lockstep/fsdp/memory_report.h"
#include "lockstep/fsdp/testing/settings.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::fsdp {
namespace {

using lockstep::testing::CountingAllocator;
using ::testing::HasSubstr;
using testing::OnRanks;

constexpr int64_t kWidth = 256, kLayers = 8, kLayerBytes = (kWidth + 1) * kWidth * 4;

torch::nn::Sequential Mlp() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) net->push_back(torch::nn::Linear(kWidth, kWidth));
  return net;
}

struct Model {
  std::function<torch::nn::Sequential()> make;
  at::Tensor input;        // so small that activations do not count
  int64_t tied_bytes = 0;  // of a parameter that is used twice: autograd has two gradients of it for a moment
};

// `input_gradient`: as behind an embedding, the first layer computes a gradient of its input.
Model MlpModel(bool input_gradient = true) { return {&Mlp, at::ones({1, kWidth}).requires_grad_(input_gradient)}; }

// GPT-2's smallest, of 124 million parameters, or one of 10 million.
Model GptModel(bool large) {
  models::CausalLMConfig config;
  if (!large) {
    config.vocab_size = 512;
    config.hidden_size = 256;
    config.num_attention_heads = 8;
    config.max_position_embeddings = 128;
  }
  return {[config] { return torch::nn::Sequential(models::CausalLM(config)); }, at::zeros({1, 2}, at::kLong),
          4 * config.vocab_size * config.hidden_size};
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
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  // After the last steps, the smallest: a thread of Gloo may free a collective's tensors later.
  int64_t estimated = 0, after_three_steps = 0, at_end = kMost;
  // The smallest peak of a step after the third. In some steps one rank is ahead.
  int64_t peak = kMost;
};

Options Paged(Shard shard, int whole_units) {
  Options options;
  options.units = {"*"};
  options.shard = shard;
  options.whole_units = whole_units;
  options.residency = Residency::kPaged;
  return options;
}

Bytes Train(const Model& model, int ranks, const Options& options, int steps, bool keeps = false) {
  CountingAllocator::Install();
  const int64_t before = CountingAllocator::bytes();
  Bytes bytes;
  std::atomic<int64_t> estimated = 0;
  const auto statuses = OnRanks(ranks, "gloo", [&](comm::ProcessGroup& group) -> absl::Status {
    const torch::nn::Sequential made = model.make();
    internal::KeptShards kept;
    if (keeps) kept = KeptShardsOf(made, group);
    LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(made, &group, options, keeps ? &kept : nullptr));
    estimated += EstimateMemory(net, /*states=*/2).peak;
    optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3).fused(true));
    for (int step = 1; step <= steps; ++step) {
      for ([[maybe_unused]] const int virtual_rank : net.VirtualRanks(step))
        net(model.input.detach().requires_grad_(model.input.requires_grad())).sum().backward();
      if (keeps) {
        LOCKSTEP_RETURN_IF_ERROR(kept.prepare_step());
        optimizer.step();
        LOCKSTEP_RETURN_IF_ERROR(kept.publish());
      } else {
        absl::Status met;  // all ranks have the gradients of their shards at once
        LOCKSTEP_RETURN_IF_ERROR(net.Step([&] {
          met = group.Barrier();
          optimizer.step();
        }));
        LOCKSTEP_RETURN_IF_ERROR(met);
      }
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
      if (group.rank() == 0) {
        const int64_t now = (CountingAllocator::bytes() - before) / group.size();
        if (step == 3) bytes.after_three_steps = now;
        if (step > steps - 10) bytes.at_end = std::min(bytes.at_end, now);
        if (step > 3) bytes.peak = std::min(bytes.peak, (CountingAllocator::peak() - before) / group.size());
        CountingAllocator::Restart();
      }
      LOCKSTEP_RETURN_IF_ERROR(group.Barrier());
    }
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  bytes.estimated = estimated / ranks;
  return bytes;
}

TEST(PagedMemory, ARankHasItsPartOfTheStateAndAFewUnits) {
  const int64_t parameters = kLayers * kLayerBytes;
  for (const Shard shard : {Shard::kElements, Shard::kRows}) {
    for (const auto& [whole_units, prefetch] : {std::pair(1, true), {2, false}, {2, true}}) {
      const int ranks = 2 * whole_units;
      Options options = Paged(shard, whole_units);
      options.prefetch = prefetch;
      const Bytes bytes = Train(MlpModel(), ranks, options, 20);
      const int64_t state = 4 * parameters / ranks;  // parameters, gradients, and two states of AdamW
      const double units = static_cast<double>(bytes.peak - state) / kLayerBytes;
      std::cout << ranks << " ranks, whole_units " << whole_units << (shard == Shard::kRows ? ", rows" : "")
                << (whole_units == 2 && prefetch ? ", prefetch" : "") << ": at peak (P + G + O) / W and " << units
                << " units; after a step " << static_cast<double>(bytes.at_end - state) / kLayerBytes << " units\n";
      // Rows are gathered into one more buffer, and a thread of Gloo may still hold the last gather's.
      // Gloo has a copy of a unit that is gathered ahead, too. With whole_units 1 there is none.
      EXPECT_LT(units, whole_units + (shard == Shard::kRows ? 3 : 1) + (whole_units == 2 && prefetch ? 1 : 0) + 0.2);
    }
  }
}

// The buffers have each gradient twice, unless the gradients are reduced in chunks.
TEST(PagedMemory, ARankHasItsPartOfWhatIsOnTwoRanks) {
  const int64_t parameters = kLayers * kLayerBytes;
  for (const auto& [ranks, in_chunks] : {std::pair(2, false), {4, false}, {2, true}, {4, true}}) {
    Options options = Paged(Shard::kElements, 2);
    if (in_chunks) options.unit_bytes = kLayerBytes / 4;
    const Bytes bytes = Train(MlpModel(), ranks, options, 20, /*keeps=*/true);
    const int64_t state = 2 * 4 * parameters / ranks;
    const double units = static_cast<double>(bytes.peak - state) / kLayerBytes;
    std::cout << ranks << " ranks" << (in_chunks ? ", in chunks" : "") << ": at peak 2 (P + G + O) / W and " << units
              << " units; after a step " << static_cast<double>(bytes.at_end - state) / kLayerBytes << " units\n";
    // A thread of Gloo may still hold the share that this rank has packed for a gather, and has a copy of a unit that is
    // gathered ahead.
    EXPECT_LT(units, (in_chunks ? 5 : 9) + 1.0 / ranks + 0.2);
  }
}

TEST(PagedMemory, StepsLeakNothing) {
  const Bytes bytes = Train(MlpModel(), 2, Paged(Shard::kElements, 2), 1000);
  EXPECT_LT(bytes.at_end, bytes.after_three_steps + 2000);
}

TEST(MemoryReport, EstimatesThePeak) {
  const auto expect = [](const char* what, const Options& options, bool keeps = false) {
    const Bytes bytes = Train(MlpModel(/*input_gradient=*/false), 2, options, 8, keeps);
    std::cout << what << ": estimated " << bytes.estimated << ", at peak " << bytes.peak << "\n";
    EXPECT_NEAR(bytes.peak, bytes.estimated, 0.05 * bytes.estimated) << what;
  };
  for (const int whole_units : {1, 2}) {
    const Options elements = Paged(Shard::kElements, whole_units);
    expect("elements", elements);
    expect("rows", Paged(Shard::kRows, whole_units));
    expect("kept shards", elements, /*keeps=*/true);
    Options chunks = elements;
    chunks.unit_bytes = kLayerBytes / 8;
    expect("elements, in chunks", chunks);
    expect("kept shards, in chunks", chunks, /*keeps=*/true);
    Options mixed = elements;
    mixed.mixed_precision.emplace();
    expect("mixed precision", mixed);
  }
  Options virtual_ranks = Paged(Shard::kElements, 2);
  virtual_ranks.virtual_ranks = 8;
  expect("virtual ranks", virtual_ranks);
}

// With LOCKSTEP_LARGE in the environment, of 124 million parameters.
TEST(MemoryReport, EstimatesThePeakOfAGpt) {
  const Model model = GptModel(std::getenv("LOCKSTEP_LARGE") != nullptr);
  for (const int ranks : {2, 4}) {
    for (const int whole_units : {1, 2}) {
      Options options = Paged(Shard::kElements, whole_units);
      options.units = {"0.transformer.h.*"};
      options.prefetch = false;  // or Gloo has a copy of a unit, in some steps
      const Bytes bytes = Train(model, ranks, options, 8);
      std::cout << ranks << " ranks, whole_units " << whole_units << ": estimated " << bytes.estimated << ", at peak "
                << bytes.peak << "\n";
      EXPECT_GT(bytes.peak, 0.95 * bytes.estimated);
      EXPECT_LT(bytes.peak, 1.05 * bytes.estimated + model.tied_bytes);
    }
  }
}

// The layers have 2.008 MiB.
TEST(MemoryReport, IsALineOfEachRank) {
  const auto expect = [](const char* backend, const char* estimated_line, const char* counted_line) {
    const auto statuses = OnRanks(2, backend, [&](comm::ProcessGroup& group) -> absl::Status {
      Options options;
      options.units = {"*"};
      LOCKSTEP_ASSIGN_OR_RETURN(auto net, Wrap(Mlp(), &group, options));
      optim::AdamW optimizer(net.shards(), optim::AdamWOptions(1e-3).fused(true));
      const MemoryReport estimated = EstimateMemory(net, /*states=*/2);
      EXPECT_EQ(estimated.ToString(), absl::StrCat("rank ", group.rank(), ": ", estimated_line));
      net(at::ones({1, kWidth})).sum().backward();
      LOCKSTEP_RETURN_IF_ERROR(net.Step(optimizer));
      LOCKSTEP_ASSIGN_OR_RETURN(const MemoryReport counted, CountMemory(net, optimizer));
      EXPECT_THAT(counted.ToString(), HasSubstr(absl::StrCat("rank ", group.rank(), ": ", counted_line)));
      // And a number of four bytes for each shard.
      EXPECT_EQ(counted.optimizer, estimated.optimizer + 4 * static_cast<int64_t>(net.shards().size()));
      EXPECT_EQ(counted.units, estimated.units);
      EXPECT_GT(counted.peak, estimated.peak);  // with LibTorch
      return group.Barrier();
    });
    for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  };
  expect("shm", "shared pages 2.0 MiB, gradients 1.0 MiB, optimizer 2.0 MiB, units 0.5 MiB, at peak 5.8 MiB",
         "shared pages 2.0 MiB, gradients 1.0 MiB, optimizer 2.0 MiB, units 0.5 MiB, at peak ");
  expect("gloo", "shards 1.0 MiB, gradients 1.0 MiB, optimizer 2.0 MiB, units 0.5 MiB, at peak 5.0 MiB",
         "shards 1.0 MiB, gradients 1.0 MiB, optimizer 2.0 MiB, units 0.5 MiB, at peak ");
}

}  // namespace
}  // namespace lockstep::fsdp
