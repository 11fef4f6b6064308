#include "lockstep/checkpoint/sharded/internal/boxes.h"

#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::checkpoint::internal {
namespace {

// The elements of a box, each as its index in every dimension.
std::set<std::vector<int64_t>> Elements(const Box& box) {
  std::set<std::vector<int64_t>> elements = {{}};
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    std::set<std::vector<int64_t>> longer;
    for (std::vector<int64_t> element : elements) {
      element.push_back(0);
      for (int64_t i = 0; i < box.sizes[d]; ++i) {
        element.back() = box.offsets[d] + i;
        longer.insert(element);
      }
    }
    elements = longer;
  }
  return elements;
}

std::set<std::vector<int64_t>> Shared(const Box& a, const Box& b) {
  std::set<std::vector<int64_t>> shared;
  const auto in_b = Elements(b);
  for (const auto& element : Elements(a)) {
    if (in_b.count(element) > 0) shared.insert(element);
  }
  return shared;
}

std::vector<Box> RandomBoxes(std::mt19937& random) {
  std::vector<Box> boxes(1 + random() % 5);
  const size_t dimensions = random() % 4;
  for (Box& box : boxes) {
    for (size_t d = 0; d < dimensions; ++d) {
      box.offsets.push_back(random() % 6);
      box.sizes.push_back(random() % 4);
    }
  }
  return boxes;
}

TEST(Box, SharesTheElementsThatBothHave) {
  std::mt19937 random(0);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Box> boxes = RandomBoxes(random);
    const auto shared = Intersect(boxes.front(), boxes.back());
    EXPECT_EQ(shared ? Elements(*shared) : std::set<std::vector<int64_t>>(), Shared(boxes.front(), boxes.back()));
  }
}

TEST(Box, FindsAnOverlapWhereTwoShareAnElement) {
  std::mt19937 random(1);
  int overlapping = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Box> boxes = RandomBoxes(random);
    bool expected = false;
    for (size_t i = 0; i < boxes.size(); ++i) {
      for (size_t j = 0; j < i; ++j) expected = expected || !Shared(boxes[i], boxes[j]).empty();
    }
    const auto found = FindOverlap(boxes);
    ASSERT_EQ(found.has_value(), expected);
    if (!found) continue;
    ++overlapping;
    EXPECT_LT(found->first, found->second);
    EXPECT_FALSE(Shared(boxes[found->first], boxes[found->second]).empty());
  }
  EXPECT_GT(overlapping, 300);
  EXPECT_LT(overlapping, 2700);
}

TEST(Box, IsInsideWhereAllItsElementsAre) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Box> boxes = RandomBoxes(random);
    const Box whole = WholeBox(boxes.front().sizes);
    const Box& part = boxes.back();
    bool inside = true;
    for (size_t d = 0; d < part.sizes.size(); ++d) inside = inside && part.offsets[d] + part.sizes[d] <= whole.sizes[d];
    EXPECT_EQ(CheckInside(part, whole.sizes).ok(), inside) << ToString(part) << " in " << ToString(whole.sizes);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint::internal
