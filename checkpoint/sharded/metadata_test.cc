// .metadata files that contradict themselves or lead out of the checkpoint.

#include "lockstep/checkpoint/sharded/metadata.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/pickle/writer.h"
#include "lockstep/checkpoint/sharded/internal/metadata_pickle.h"

namespace lockstep::checkpoint {
namespace {

using internal::DecodeMetadata;
using internal::EncodeMetadata;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kLimit = 16 << 20;

// A tensor of two parts, and a plain value.
ShardedMetadata Small() {
  ShardedItem tensor;
  tensor.name = "model.w";
  tensor.path = {"model", "w"};
  tensor.is_tensor = true;
  tensor.dtype = at::kFloat;
  tensor.requires_grad = true;
  tensor.sizes = {4, 3};
  tensor.chunks = {{{{0, 0}, {3, 3}}, "__0_0.distcp", 0, 1000}, {{{3, 0}, {1, 3}}, "__1_0.distcp", 0, 900}};
  ShardedItem plain;
  plain.name = "list.0";
  plain.path = {"list", 0};
  plain.chunks = {{{}, "__0_0.distcp", 1000, 800}};
  return {{tensor, plain}};
}

std::string Message(const std::function<void(ShardedMetadata&)>& change) {
  ShardedMetadata metadata = Small();
  change(metadata);
  return std::string(DecodeMetadata(EncodeMetadata(metadata), kLimit).status().message());
}

TEST(Metadata, ComesBackAsItWas) {
  const auto metadata = DecodeMetadata(EncodeMetadata(Small()), kLimit);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  ASSERT_EQ(metadata->items.size(), 2);
  const ShardedItem& tensor = metadata->items[0];
  EXPECT_EQ(tensor.name, "model.w");
  EXPECT_TRUE(Identical(Value::Tuple(tensor.path), Value::Tuple({"model", "w"})));
  EXPECT_EQ(tensor.dtype, at::kFloat);
  EXPECT_TRUE(tensor.requires_grad);
  EXPECT_THAT(tensor.sizes, ElementsAre(4, 3));
  ASSERT_EQ(tensor.chunks.size(), 2);
  EXPECT_EQ(tensor.chunks[1].box, (Box{{3, 0}, {1, 3}}));
  EXPECT_EQ(tensor.chunks[1].file, "__1_0.distcp");
  EXPECT_EQ(tensor.chunks[1].length, 900);
  EXPECT_FALSE(metadata->items[1].is_tensor);
  EXPECT_TRUE(Identical(Value::Tuple(metadata->items[1].path), Value::Tuple({"list", 0})));
  EXPECT_EQ(metadata->items[1].chunks.at(0).offset, 1000);
}

TEST(Metadata, NamesFilesInItsDirectoryOnly) {
  for (const char* file : {"../../etc/passwd", "/etc/passwd", "a/b", "..", ".", ""}) {
    const std::string message = Message([&](ShardedMetadata& m) { m.items[0].chunks[1].file = file; });
    EXPECT_THAT(message, HasSubstr("item \"model.w\": \"" + std::string(file) + "\" is not the name of a file"));
  }
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].chunks[1].file = std::string("a\0b", 3); }),
              HasSubstr("is not the name of a file"));
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].chunks[1].file = std::string(256, 'a'); }),
              HasSubstr("is not the name of a file"));
}

TEST(Metadata, PartsLieInsideTheirTensorAndApart) {
  EXPECT_EQ(Message([](ShardedMetadata& m) {
              m.items[0].chunks[1].box.offsets = {2, 0};
            }),
            "item \"model.w\": its parts [3, 3] at [0, 0] and [1, 3] at [2, 0] overlap");
  EXPECT_EQ(Message([](ShardedMetadata& m) {
              m.items[0].chunks[1].box.offsets = {4, 0};
            }),
            "item \"model.w\": a part [1, 3] at [4, 0] is not inside [4, 3]");
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].chunks[1].box.offsets = {-1, 0}; }), HasSubstr("not inside"));
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].chunks[1].box.sizes = {-1, 3}; }), HasSubstr("not inside"));
  EXPECT_THAT(Message([](ShardedMetadata& m) {
                m.items[0].chunks[1].box.sizes = {INT64_MAX, 3};
              }),
              HasSubstr("not inside"));
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].chunks[1].box.sizes = {1}; }), HasSubstr("not inside"));
}

TEST(Metadata, SizesAreInRange) {
  EXPECT_EQ(Message([](ShardedMetadata& m) {
              m.items[0].sizes = {-4, 3};
            }),
            "item \"model.w\": a negative size: [-4, 3]");
  EXPECT_THAT(Message([](ShardedMetadata& m) {
                m.items[0].sizes = {int64_t{1} << 40, int64_t{1} << 30};
              }),
              HasSubstr("a size out of range"));
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].sizes = std::vector<int64_t>(65, 1); }),
              HasSubstr("more than 64 dimensions"));
}

TEST(Metadata, BytesOfAFileBelongToOneItem) {
  EXPECT_EQ(Message([](ShardedMetadata& m) { m.items[1].chunks[0].offset = 999; }),
            "items \"model.w\" and \"list.0\" take the same bytes of __0_0.distcp");
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[0].chunks[0].offset = -1; }),
              HasSubstr("a negative number of bytes: -1"));
  EXPECT_EQ(Message([](ShardedMetadata& m) { m.items[0].chunks[0].length = 35; }),
            "item \"model.w\": its part [3, 3] at [0, 0] has 36 bytes, but takes 35 of a file");
}

TEST(Metadata, APartWithoutElementsTakesNoBytesOfOthers) {
  const ShardedItem empty{"empty", {"empty"}, true, at::kFloat, false, {0, 2}, {{{{0, 0}, {0, 2}}, "f", 0, 0}}};
  ShardedItem full = empty;
  full.name = "full";
  full.path = {"full"};
  full.sizes = full.chunks[0].box.sizes = {1, 2};
  full.chunks[0].length = 8;
  EXPECT_TRUE(DecodeMetadata(EncodeMetadata({{empty, full}}), kLimit).ok());
  EXPECT_TRUE(DecodeMetadata(EncodeMetadata({{full, empty}}), kLimit).ok());
}

TEST(Metadata, PathsSpellNamesAndNamesAreThereOnce) {
  EXPECT_EQ(Message([](ShardedMetadata& m) {
              m.items[0].path = {"model", "v"};
            }),
            "item \"model.w\": its path does not spell its name");
  EXPECT_EQ(Message([](ShardedMetadata& m) {
              m.items[1].path = {"list", 1};
            }),
            "item \"list.0\": its path does not spell its name");
  EXPECT_THAT(Message([](ShardedMetadata& m) { m.items[1].path = {}; }), HasSubstr("its path is empty or too long"));
  EXPECT_EQ(Message([](ShardedMetadata& m) { m.items.push_back(m.items[0]); }), "item \"model.w\" occurs twice");
}

TEST(Metadata, IsAMetadataObjectAndNothingElse) {
  pickle::PickleWriter dict;
  dict.EmptyDict();
  EXPECT_EQ(DecodeMetadata(std::move(dict).Finish(), kLimit).status().message(), "a Metadata is expected here");
  pickle::PickleWriter call;
  call.Global("os", "system");
  call.String("true");
  call.Tuple1();
  call.Reduce();
  EXPECT_THAT(std::string(DecodeMetadata(std::move(call).Finish(), kLimit).status().message()),
              HasSubstr("the Python object os.system is not allowed"));
  EXPECT_THAT(std::string(DecodeMetadata(EncodeMetadata(Small()), 1000).status().message()),
              HasSubstr("needs more memory"));
}

}  // namespace
}  // namespace lockstep::checkpoint
