// Saves from a CUDA device in the background.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include <string>

#include "gtest/gtest.h"
#include "lockstep/checkpoint/async_saver.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/rng_state.h"
#include "lockstep/checkpoint/testing/folder.h"

namespace lockstep::checkpoint {
namespace {

TEST(AsyncSaverOnCuda, WhatChangesAfterSaveIsNotInTheFileAndTheDeviceIs) {
  const testing::Folder folder;
  const std::string path = folder.path() + "/model.pt";
  const at::Tensor device = at::full({1 << 22}, 0.0, at::kCUDA), host = at::full({1 << 20}, 0.0);
  const Value value = Value::List({device, device.slice(0, 5, 9), host});
  AsyncSaver saver;
  ASSERT_EQ(saver.Prepare(value), absl::OkStatus());
  for (int i = 0; i < 5; ++i) {
    // The stream is still executing this when Save is called.
    device.fill_(i);
    host.fill_(i);
    ASSERT_EQ(saver.Save(path, value), absl::OkStatus());
    device.fill_(-1);
    host.fill_(-1);
    ASSERT_EQ(saver.Wait(), absl::OkStatus());
    const auto loaded = Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    for (const Value& item : loaded->items()) EXPECT_TRUE(item.tensor().eq(i).all().item<bool>()) << "save " << i;
    EXPECT_EQ(loaded->items()[0].tensor().device(), device.device());
    EXPECT_TRUE(loaded->items()[1].tensor().is_alias_of(loaded->items()[0].tensor()));
    EXPECT_TRUE(loaded->items()[2].tensor().is_cpu());
  }
}

TEST(AsyncSaverOnCuda, WritesTheFileThatSaveWrites) {
  const testing::Folder folder;
  const Value value = Value::Dict({{"w", Value::Parameter(at::rand({300, 7}, at::kCUDA).set_requires_grad(true))}});
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(folder.path() + "/model.pt", value), absl::OkStatus());
  ASSERT_EQ(saver.Wait(), absl::OkStatus());
  const std::string written = folder.Read("model.pt");
  ASSERT_EQ(Save(folder.path() + "/model.pt", value), absl::OkStatus());
  EXPECT_TRUE(written == folder.Read("model.pt"));
}

TEST(RngStateOnCuda, DrawsAgainWhatWasDrawnAfterIt) {
  const auto state = RngState();
  ASSERT_TRUE(state.ok()) << state.status();
  const at::Tensor drawn = at::rand({50}, at::kCUDA);
  ASSERT_EQ(SetRngState(*state), absl::OkStatus());
  EXPECT_TRUE(at::rand({50}, at::kCUDA).equal(drawn));
}

}  // namespace
}  // namespace lockstep::checkpoint
