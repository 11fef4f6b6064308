// Tensors that are dense but not contiguous, such as images in channels_last.

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/backend_conformance.h"

namespace lockstep::comm::testing {
namespace {

constexpr int kLayouts = 3;

// Returns the elements of `tensor` contiguous, in channels_last, or with the first index varying fastest.
at::Tensor Laid(const at::Tensor& tensor, int layout) {
  if (layout % kLayouts == 0) return tensor.contiguous();
  if (layout % kLayouts == 1) return tensor.contiguous(at::MemoryFormat::ChannelsLast);
  return tensor.permute({3, 2, 1, 0}).contiguous().permute({3, 2, 1, 0});
}

at::Tensor Images(int64_t factor) { return at::arange(2 * 3 * 4 * 5, at::kFloat).view({2, 3, 4, 5}) * factor; }

// Memory for each rank's images, in layouts that differ.
std::vector<at::Tensor> Empty(int size, int first_layout) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < size; ++i) tensors.push_back(Laid(at::zeros({2, 3, 4, 5}), first_layout + i));
  return tensors;
}

std::vector<at::Tensor> OfEachRank(int size, int first_layout) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < size; ++i) tensors.push_back(Laid(Images(i + 1), first_layout + i));
  return tensors;
}

void ExpectOfEachRank(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(tensors[i].equal(Images(static_cast<int64_t>(i) + 1))) << i;
}

TEST_P(BackendConformance, ReducesElementsByIndexWhateverTheRanksStrides) {
  ForEachSize([](ProcessGroup& group) {
    const int rank = group.rank(), size = group.size(), sum = size * (size + 1) / 2;
    for (int shift = 0; shift < kLayouts; ++shift) {
      const at::Tensor all = Laid(Images(rank + 1), rank + shift).requires_grad_();
      const auto strides = all.strides().vec();
      const void* const memory = all.const_data_ptr();
      EXPECT_EQ(group.AllReduce(all), absl::OkStatus());
      EXPECT_TRUE(all.equal(Images(sum)));
      EXPECT_EQ(all.strides(), strides);
      EXPECT_EQ(all.const_data_ptr(), memory);
      const at::Tensor one = Laid(Images(rank + 1), rank + shift);
      EXPECT_EQ(group.Reduce(one, size - 1), absl::OkStatus());
      EXPECT_TRUE(rank != size - 1 || one.equal(Images(sum)));
      const at::Tensor part = Laid(at::zeros({2, 3, 4, 5}), rank + shift);
      EXPECT_EQ(group.ReduceScatter(part, OfEachRank(size, rank)), absl::OkStatus());
      EXPECT_TRUE(part.equal(Images(int64_t{rank + 1} * size)));
    }
  });
}

TEST_P(BackendConformance, MovesElementsByIndexWhateverTheRanksStrides) {
  ForEachSize([](ProcessGroup& group) {
    const int rank = group.rank(), size = group.size();
    for (int root = 0; root < size; ++root) {
      const at::Tensor copy = Laid(Images(rank + 1), rank);
      EXPECT_EQ(group.Broadcast(copy, root), absl::OkStatus());
      EXPECT_TRUE(copy.equal(Images(root + 1)));
      const std::vector<at::Tensor> none;
      const std::vector<at::Tensor> outputs = Empty(size, rank);
      EXPECT_EQ(group.Gather(rank == root ? outputs : none, Laid(Images(rank + 1), rank + 1), root), absl::OkStatus());
      if (rank == root) ExpectOfEachRank(outputs);
      const at::Tensor part = Laid(at::zeros({2, 3, 4, 5}), rank + 2);
      EXPECT_EQ(group.Scatter(part, rank == root ? OfEachRank(size, 1) : none, root), absl::OkStatus());
      EXPECT_TRUE(part.equal(Images(rank + 1)));
    }
    const std::vector<at::Tensor> outputs = Empty(size, rank);
    EXPECT_EQ(group.AllGather(outputs, Laid(Images(rank + 1), rank + 1)), absl::OkStatus());
    ExpectOfEachRank(outputs);
  });
}

TEST_P(BackendConformance, SendsElementsByIndexWhateverTheRanksStrides) {
  OnRanks(2, [](ProcessGroup& group) {
    const int rank = group.rank(), other = 1 - rank;
    for (int shift = 0; shift < kLayouts; ++shift) {
      const at::Tensor received = Laid(at::zeros({2, 3, 4, 5}), rank + shift);
      Work receive = group.Irecv(received, other);
      EXPECT_EQ(group.Send(Laid(Images(rank + 1), rank + 1), other), absl::OkStatus());
      EXPECT_EQ(receive.Wait(), absl::OkStatus());
      EXPECT_TRUE(received.equal(Images(other + 1)));
    }
  });
}

TEST_P(BackendConformance, RefusesTensorsWithGapsOrOverlaps) {
  OnRanks(2, [](ProcessGroup& group) {
    EXPECT_THAT(group.AllReduce(at::zeros({4, 6}).slice(1, 0, 3)).message(),
                ::testing::HasSubstr("the tensor has gaps or overlaps in memory: its strides are [6, 1]"));
    EXPECT_THAT(group.Broadcast(at::zeros({1}).expand({4}), 0).message(),
                ::testing::HasSubstr("the tensor has gaps or overlaps in memory: its strides are [0]"));
    EXPECT_THAT(group.AllReduceCoalesced({at::zeros({4, 6}).t()}).message(),
                ::testing::HasSubstr("the tensor is not contiguous: its strides are [1, 6]"));
    EXPECT_EQ(group.Barrier(), absl::OkStatus());
  });
}

}  // namespace
}  // namespace lockstep::comm::testing
