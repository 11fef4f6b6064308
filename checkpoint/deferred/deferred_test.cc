#include <torch/torch.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/deferred/file.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/testing/folder.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `channels_last` is dense, and `half` has another dtype.
struct Contents {
  at::Tensor channels_last = at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor half = at::rand({300, 7}).to(at::kHalf);
  at::Tensor plain = at::rand({5});

  Value With(const at::Tensor& first, const at::Tensor& second) const {
    return Value::Dict({{"a", first}, {"b", Value::List({plain, second, first})}, {"epoch", 3}});
  }
};

TEST(Deferred, AFileHasTheBytesOfOneWhoseTensorsAreInMemory) {
  const testing::Folder folder;
  const Contents contents;
  DeferredTensors deferred;
  std::vector<int> fetched;
  const at::Tensor first = deferred.Add({2, 3, 4, 5}, contents.channels_last.strides(), at::kFloat, [&] {
    fetched.push_back(1);
    return absl::StatusOr<at::Tensor>(contents.channels_last.permute({0, 2, 3, 1}));
  });
  const at::Tensor second = deferred.Add({300, 7}, {7, 1}, at::kHalf, [&] {
    fetched.push_back(2);
    // In the middle of a larger memory.
    return absl::StatusOr<at::Tensor>(at::cat({contents.half, contents.half}).narrow(0, 300, 300));
  });
  ASSERT_EQ(Save(folder.path() + "/file.pt", contents.With(contents.channels_last, contents.half)), absl::OkStatus());
  const std::string expected = folder.Read("file.pt");
  ASSERT_EQ(SaveDeferred(folder.path() + "/file.pt", contents.With(first, second), deferred), absl::OkStatus());
  EXPECT_EQ(folder.Read("file.pt"), expected);
  EXPECT_THAT(fetched, ElementsAre(1, 2));  // once each, in the file's order
}

TEST(Deferred, AnErrorOfAFetchLeavesTheOldFile) {
  const testing::Folder folder;
  ASSERT_EQ(Save(folder.path() + "/file.pt", 3), absl::OkStatus());
  const std::string before = folder.Read("file.pt");
  DeferredTensors deferred;
  const at::Tensor lost =
      deferred.Add({4}, {1}, at::kFloat, []() -> absl::StatusOr<at::Tensor> { return absl::UnavailableError("gone"); });
  const at::Tensor small = deferred.Add({4}, {1}, at::kFloat, [] { return absl::StatusOr<at::Tensor>(at::ones({3})); });
  EXPECT_THAT(SaveDeferred(folder.path() + "/file.pt", lost, deferred).message(), HasSubstr("file.pt: gone"));
  EXPECT_THAT(SaveDeferred(folder.path() + "/file.pt", small, deferred).message(),
              HasSubstr("expected 16 contiguous bytes of a tensor, found 12"));
  EXPECT_EQ(folder.Read("file.pt"), before);
}

TEST(Deferred, AFileIsReadTensorByTensor) {
  const testing::Folder folder;
  const Contents contents;
  const Value saved = contents.With(contents.channels_last, contents.half);
  ASSERT_EQ(Save(folder.path() + "/file.pt", Value::Dict({{"state", saved}})), absl::OkStatus());
  DeferredTensors deferred;
  const absl::StatusOr<Value> loaded = LoadDeferred(folder.path() + "/file.pt", "state", deferred);
  ASSERT_EQ(loaded.status(), absl::OkStatus());
  EXPECT_EQ(*GetInt(*loaded, "epoch"), 3);
  const at::Tensor first = *GetTensor(*loaded, "a"), second = *GetTensor(*loaded, {"b", 1});
  EXPECT_EQ(first.storage().data(), nullptr);
  EXPECT_TRUE(deferred.Get(second)->equal(contents.half));
  EXPECT_TRUE(deferred.Get(first)->equal(contents.channels_last));
  EXPECT_EQ(deferred.Get(first)->strides(), contents.channels_last.strides());
  EXPECT_TRUE(deferred.Get(contents.plain)->is_same(contents.plain));
}

TEST(Deferred, DamageOfATensorIsFoundWhenItIsRead) {
  const testing::Folder folder;
  const at::Tensor ones = at::ones({100}), twos = at::full({100}, 2.0);
  ASSERT_EQ(Save(folder.path() + "/file.pt", Value::Dict({{"ones", ones}, {"twos", twos}})), absl::OkStatus());
  std::string bytes = folder.Read("file.pt");
  const std::string wanted(static_cast<const char*>(twos.data_ptr()), twos.nbytes());
  bytes[bytes.find(wanted) + 5] ^= 1;
  folder.Write("file.pt", bytes);
  DeferredTensors deferred;
  const auto loaded = LoadDeferred(folder.path() + "/file.pt", KeyPath(std::vector<Value>()), deferred);
  ASSERT_EQ(loaded.status(), absl::OkStatus());
  EXPECT_TRUE(deferred.Get(*GetTensor(*loaded, "ones"))->equal(ones));
  const absl::Status damaged = deferred.Get(*GetTensor(*loaded, "twos")).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("[\"twos\"]: tensor"));
}

}  // namespace
}  // namespace lockstep::checkpoint
