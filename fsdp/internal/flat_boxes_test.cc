#include "lockstep/fsdp/internal/flat_boxes.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::fsdp::internal {
namespace {

// The places of a box's elements among the tensor's, in row-major order.
std::vector<int64_t> PlacesOf(const checkpoint::Box& box, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> places = {0};
  for (size_t d = 0; d < sizes.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t place : places) {
      for (int64_t i = 0; i < box.sizes[d]; ++i) next.push_back(place * sizes[d] + box.offsets[d] + i);
    }
    places = next;
  }
  return places;
}

TEST(FlatBoxes, AreTheIntervalInItsOrderAndFew) {
  const std::vector<std::vector<int64_t>> shapes = {
      {}, {1}, {7}, {3, 5}, {1, 4}, {5, 1}, {2, 2}, {3, 1, 4}, {2, 3, 4}, {2, 3, 2, 3}, {1, 2, 1, 3, 2}, {1, 1, 1}};
  for (const std::vector<int64_t>& sizes : shapes) {
    const int64_t numel = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
    const size_t most = sizes.empty() ? 1 : 2 * sizes.size() - 1;
    for (int64_t begin = 0; begin <= numel; ++begin) {
      for (int64_t end = begin; end <= numel; ++end) {
        const std::vector<FlatBox> boxes = BoxesOf(sizes, begin, end);
        EXPECT_LE(boxes.size(), most);
        int64_t next = begin;
        for (const FlatBox& found : boxes) {
          EXPECT_EQ(found.begin, next);
          for (const int64_t place : PlacesOf(found.box, sizes)) EXPECT_EQ(place, next++);
        }
        EXPECT_EQ(next, end);
      }
    }
  }
}

TEST(FlatBoxes, AWholeTensorIsOneBox) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, {6}, {4, 3}, {1, 4, 3}, {2, 3, 4, 5}}) {
    const int64_t numel = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
    const std::vector<FlatBox> boxes = BoxesOf(sizes, 0, numel);
    ASSERT_EQ(boxes.size(), 1);
    EXPECT_EQ(boxes[0].box.sizes, sizes);
    EXPECT_EQ(boxes[0].box.offsets, std::vector<int64_t>(sizes.size(), 0));
  }
}

TEST(FlatBoxes, ATensorWithoutElementsHasNone) { EXPECT_TRUE(BoxesOf({3, 0, 2}, 0, 0).empty()); }

}  // namespace
}  // namespace lockstep::fsdp::internal
