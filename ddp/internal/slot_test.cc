#include "lockstep/ddp/internal/slot.h"

#include <torch/torch.h>

#include <vector>

#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp::internal {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Wrapped;

TEST(Slot, IsAPartOfTheBufferWithTheParametersShape) {
  const torch::Tensor buffer = torch::arange(10, torch::kDouble);
  const Slot slot(buffer, 3, torch::empty({2, 3}));
  EXPECT_TRUE(slot.tensor().equal(torch::arange(3, 9, torch::kDouble).view({2, 3})));
  slot.tensor()[1][0] = 66;
  EXPECT_EQ(buffer[6].item<double>(), 66);
  EXPECT_TRUE(slot.Holds(slot.tensor()[0]));
  EXPECT_FALSE(slot.Holds(buffer.slice(0, 3, 9)));  // another storage
  EXPECT_FALSE(slot.Holds(slot.tensor().clone()));
}

TEST(Slot, HasTheParametersStridesWhereTheyLeaveNoGaps) {
  const torch::Tensor buffer = torch::zeros({24});
  const torch::Tensor channels_last = torch::empty({1, 2, 3, 4}).contiguous(torch::MemoryFormat::ChannelsLast);
  EXPECT_EQ(Slot(buffer, 0, channels_last).tensor().strides(), channels_last.strides());
  const torch::Tensor with_gaps = torch::empty({4, 8}).slice(1, 0, 4);
  EXPECT_EQ(Slot(buffer, 0, with_gaps).tensor().strides(), torch::IntArrayRef({4, 1}));
}

TEST(Slot, ReclaimedFromNobodyIsTheSame) {
  const torch::Tensor buffer = torch::zeros({4});
  Slot slot(buffer, 1, torch::empty({2}));
  const void* const before = slot.tensor().unsafeGetTensorImpl();
  slot.Reclaim();
  EXPECT_EQ(slot.tensor().unsafeGetTensorImpl(), before);
}

TEST(Slot, WhoeverHoldsWhatLivedThereKeepsItsNumbers) {
  const torch::Tensor buffer = torch::arange(6, torch::kFloat);
  Slot slot(buffer, 1, torch::empty({2, 2}));
  const torch::Tensor held = slot.tensor();
  const torch::Tensor view = held[1];
  const torch::Tensor detached = held.detach();
  slot.Reclaim();
  slot.tensor().fill_(-1);
  EXPECT_TRUE(held.equal(torch::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}})));
  EXPECT_TRUE(view.equal(torch::tensor({3.0f, 4.0f})));
  EXPECT_TRUE(detached.equal(held));
  EXPECT_TRUE(buffer.equal(torch::tensor({0.0f, -1.0f, -1.0f, -1.0f, -1.0f, 5.0f})));
  // They still share memory with each other, and none with the bucket.
  view.fill_(9);
  EXPECT_EQ(held[1][1].item<float>(), 9);
  EXPECT_EQ(buffer[4].item<float>(), -1);
  EXPECT_FALSE(slot.Holds(held));
}

TEST(Slot, OnlyAViewBeingLeftIsEnough) {
  const torch::Tensor buffer = torch::arange(6, torch::kFloat);
  Slot slot(buffer, 1, torch::empty({2, 2}));
  const torch::Tensor view = slot.tensor().select(0, 1);
  slot.Reclaim();
  slot.tensor().fill_(-1);
  EXPECT_TRUE(view.equal(torch::tensor({3.0f, 4.0f})));
}

TEST(Slot, ChannelsLastNumbersMoveOutAsTheyAre) {
  const torch::Tensor buffer = torch::arange(8, torch::kFloat);
  Slot slot(buffer, 0, torch::empty({1, 2, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast));
  const torch::Tensor held = slot.tensor();
  const torch::Tensor expected = held.clone();
  slot.Reclaim();
  slot.tensor().zero_();
  EXPECT_TRUE(held.equal(expected));
}

TEST(Slot, AGradientHeldOverTheNextStepsKeepsItsNumbers) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      Options options;
      options.gradient_as_bucket_view = view;
      auto ddp = Wrapped(SeededMlp(1), group, options);
      std::vector<torch::Tensor> held, rows, copies;
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad();
        ddp(Batch(8, 4, step)).pow(2).sum().backward();
        held.push_back(ddp.parameters()[0].grad());
        rows.push_back(ddp.parameters()[2].grad()[1]);
        copies.push_back(held.back().clone());
        copies.push_back(rows.back().clone());
      }
      for (int step = 0; step < 4; ++step) {
        EXPECT_TRUE(held[step].equal(copies[2 * step])) << step;
        EXPECT_TRUE(rows[step].equal(copies[2 * step + 1])) << step;
      }
    }
  });
}

TEST(Slot, AfterBackwardGradientsLiveInTheBucketsAndNowhereElse) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      Options options;
      options.gradient_as_bucket_view = view;
      auto ddp = Wrapped(SeededMlp(1), group, options);
      std::vector<const void*> places;
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad(/*set_to_none=*/step != 3);
        ddp(Batch(8, 4, step)).pow(2).sum().backward();
        std::vector<const void*> now;
        const char* lowest = nullptr;
        for (const torch::Tensor& parameter : ddp.parameters()) {
          const char* const data = static_cast<const char*>(parameter.grad().data_ptr());
          now.push_back(data);
          if (!lowest || data < lowest) lowest = data;
        }
        // All in one piece of memory of their size, the bucket, and in every step the same.
        for (const torch::Tensor& parameter : ddp.parameters())
          EXPECT_LE(static_cast<const char*>(parameter.grad().data_ptr()) + parameter.nbytes(), lowest + 43 * 8);
        if (step >= 2) {
          EXPECT_EQ(now, places);
        }
        places = now;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::ddp::internal
