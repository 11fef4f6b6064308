#include "lockstep/data/fake_data.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::data {
namespace {

absl::StatusOr<Example> Get(const FakeData& fake, int64_t index) {
  at::Generator unused;
  return fake.Get(index, unused);
}

FakeData Make(const FakeDataOptions& options) { return FakeData::Create(options).value(); }

FakeDataOptions Small(int64_t random_offset = 0) { return {20, {3, 8, 6}, 10, random_offset}; }

TEST(FakeData, GivesImagesAndClassesOfTheAskedSizes) {
  const FakeData fake = Make(Small());
  EXPECT_EQ(fake.size(), 20);
  for (int64_t i = 0; i < fake.size(); ++i) {
    const Example example = Get(fake, i).value();
    EXPECT_EQ(example.data.sizes(), (std::vector<int64_t>{3, 8, 6}));
    EXPECT_EQ(example.data.scalar_type(), at::kFloat);
    EXPECT_TRUE(example.data.ge(0).logical_and(example.data.le(1)).all().item<bool>());
    EXPECT_EQ(example.target.dim(), 0);
    EXPECT_GE(example.target.item<int64_t>(), 0);
    EXPECT_LT(example.target.item<int64_t>(), 10);
  }
}

TEST(FakeData, IsDecidedByIndexAndOffsetAlone) {
  const FakeData fake = Make(Small()), shifted = Make(Small(5));
  const Example example = Get(fake, 7).value(), again = Get(fake, 7).value(), other = Get(fake, 8).value();
  EXPECT_TRUE(example.data.equal(again.data));
  EXPECT_TRUE(example.target.equal(again.target));
  EXPECT_FALSE(example.data.equal(other.data));
  EXPECT_TRUE(Get(shifted, 2)->data.equal(example.data));
}

// The peer test compares whole images with torchvision's.
TEST(FakeData, IsTorchvisions) {
  const FakeData fake = Make(Small());
  std::string classes;
  for (int64_t i = 0; i < 10; ++i) classes += std::to_string(Get(fake, i)->target.item<int64_t>());
  EXPECT_EQ(classes, "1036558582");
}

TEST(FakeData, RefusesAnIndexOutOfRange) {
  const FakeData fake = Make(Small());
  EXPECT_EQ(Get(fake, 20).status(), absl::OutOfRangeError("FakeData: expected an index in [0, 20), found 20"));
  EXPECT_EQ(Get(fake, -1).status(), absl::OutOfRangeError("FakeData: expected an index in [0, 20), found -1"));
  EXPECT_FALSE(Get(Make({0}), 0).ok());
}

TEST(FakeData, RefusesSizesThatMakeNoImages) {
  EXPECT_EQ(FakeData::Create({-1}).status(),
            absl::InvalidArgumentError("FakeData: expected a size of 0 or more, found -1"));
  EXPECT_EQ(FakeData::Create({1, {3, 0, 4}}).status(),
            absl::InvalidArgumentError("FakeData: expected a positive image_size, found 3 x 0 x 4"));
  EXPECT_EQ(FakeData::Create({1, {3, 4, 4}, 0}).status(),
            absl::InvalidArgumentError("FakeData: expected at least 1 class, found 0"));
}

}  // namespace
}  // namespace lockstep::data
