#include "lockstep/checkpoint/async_saver.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/thread_budget.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/testing/folder.h"

namespace lockstep::checkpoint {
namespace {

using ::lockstep::testing::ThreadBudget;
using ::testing::ElementsAre;
using ::testing::StartsWith;

class AsyncSaverTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  const testing::Folder folder_;
};

// The file has several blocks, which a separate thread would write.
TEST_F(AsyncSaverTest, WritesTheFileAlsoWhereTheSystemRefusesThreads) {
  const Value value = Value::Dict({{"large", at::arange(5 << 20)}});
  ASSERT_EQ(Save(Path("model.pt"), value), absl::OkStatus());
  const std::string expected = folder_.Read("model.pt");
  ASSERT_EQ(std::remove(Path("model.pt").c_str()), 0);
  const ThreadBudget none(0);
  AsyncSaver saver;
  EXPECT_EQ(saver.Prepare(value), absl::OkStatus());
  EXPECT_EQ(saver.Save(Path("model.pt"), value), absl::OkStatus());
  EXPECT_TRUE(folder_.Read("model.pt") == expected) << "not there when Save returned, or other bytes";
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
  EXPECT_EQ(saver.Save(Path("no/folder.pt"), value), absl::OkStatus());
  EXPECT_EQ(saver.Wait().code(), absl::StatusCode::kNotFound);
}

// A save whose thread waits after it has written the file, until it is released.
struct Held {
  std::promise<void> go;
  std::function<absl::Status()> Then() {
    return [future = std::make_shared<std::future<void>>(go.get_future())] {
      future->wait();
      return absl::OkStatus();
    };
  }
};

TEST_F(AsyncSaverTest, WritesTheFileThatSaveWrites) {
  at::Tensor base = at::arange(12.0).set_requires_grad(true);
  const Value value = Value::Dict({{"base", Value::Parameter(base)},
                                   {"column", base.detach().view({3, 4}).select(1, 2)},
                                   {"empty", at::zeros({0, 3})},
                                   {"conjugate", at::ones({2}, at::kComplexFloat).conj()},
                                   {"large", at::full({3 << 20}, 0.25)},
                                   {"odd", at::ones({3}, at::kByte)}});
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(Path("model.pt"), value), absl::OkStatus());
  ASSERT_EQ(saver.Wait(), absl::OkStatus());
  const std::string written = folder_.Read("model.pt");
  ASSERT_EQ(Save(Path("model.pt"), value), absl::OkStatus());
  EXPECT_TRUE(written == folder_.Read("model.pt")) << "the bytes differ";
}

TEST_F(AsyncSaverTest, WhatChangesAfterSaveIsNotInTheFile) {
  at::Tensor tensor = at::full({1 << 20}, 1.0);
  const Value value = Value::Dict({{"tensor", tensor}});
  AsyncSaver saver;
  for (int i = 0; i < 5; ++i) {
    tensor.fill_(i);
    ASSERT_EQ(saver.Save(Path("model.pt"), value), absl::OkStatus());
    tensor.fill_(-1);
    ASSERT_EQ(saver.Wait(), absl::OkStatus());
    const auto loaded = Load(Path("model.pt"));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_TRUE(loaded->Find("tensor")->tensor().eq(i).all().item<bool>()) << "save " << i;
  }
}

TEST_F(AsyncSaverTest, ASaveWaitsForTheOneBefore) {
  Held held;
  AsyncSaver saver;
  bool first_done = false, second_began_after = false;
  auto then = held.Then();
  ASSERT_EQ(saver.Save(Path("a.pt"), at::ones({5}), {},
                       [&, then] {
                         const absl::Status status = then();
                         first_done = true;
                         return status;
                       }),
            absl::OkStatus());
  std::thread release([&] { held.go.set_value(); });
  ASSERT_EQ(saver.Save(Path("b.pt"), at::full({1000}, 2.0), {},
                       [&] {
                         second_began_after = first_done;
                         return absl::OkStatus();
                       }),
            absl::OkStatus());
  EXPECT_TRUE(first_done);
  release.join();
  ASSERT_EQ(saver.Wait(), absl::OkStatus());
  EXPECT_TRUE(second_began_after);
  EXPECT_TRUE(Load(Path("a.pt"))->tensor().equal(at::ones({5})));
  EXPECT_TRUE(Load(Path("b.pt"))->tensor().equal(at::full({1000}, 2.0)));
}

TEST_F(AsyncSaverTest, SaveReturnsWhileTheFileIsStillBeingDealtWith) {
  Held held;
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(Path("a.pt"), at::ones({5}), {}, held.Then()), absl::OkStatus());
  // Save would not have returned if it had waited.
  held.go.set_value();
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
}

// The memory of this process, in bytes.
int64_t Resident() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_F(AsyncSaverTest, PreparedMemoryIsPresentBeforeTheFirstSave) {
  const Value value = Value::Dict({{"large", at::full({32 << 20}, 0.5)}});
  const int64_t size = int64_t{128} << 20;
  AsyncSaver saver;
  const int64_t before = Resident();
  ASSERT_EQ(saver.Prepare(value), absl::OkStatus());
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
  const int64_t prepared = Resident();
  EXPECT_GT(prepared - before, size * 9 / 10);
  ASSERT_EQ(saver.Save(Path("model.pt"), value, {.sync = false}), absl::OkStatus());
  ASSERT_EQ(saver.Wait(), absl::OkStatus());
  EXPECT_LT(Resident() - prepared, size / 2) << "the save took other memory";
  EXPECT_TRUE(Identical(*Load(Path("model.pt")), value));
}

TEST_F(AsyncSaverTest, PreparingLeavesTheLastSavesOutcome) {
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(Path("gone/model.pt"), at::ones({5})), absl::OkStatus());
  EXPECT_EQ(saver.Prepare(at::Tensor()), absl::InvalidArgumentError("an undefined tensor"));
  EXPECT_EQ(saver.Prepare(at::ones({100})), absl::OkStatus());
  EXPECT_EQ(saver.Wait().code(), absl::StatusCode::kNotFound);
}

TEST_F(AsyncSaverTest, WaitTellsTheErrorWithThePath) {
  AsyncSaver saver;
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
  ASSERT_EQ(saver.Save(Path("gone/model.pt"), at::ones({5})), absl::OkStatus());
  const absl::Status status = saver.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), StartsWith(Path("gone/model.pt: ")));
  EXPECT_EQ(saver.Wait(), status);
  // The error has been reported, and the saver can be used again.
  ASSERT_EQ(saver.Save(Path("model.pt"), at::ones({5})), absl::OkStatus());
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
}

TEST_F(AsyncSaverTest, AnErrorThatNobodyWaitedForIsTheNextSaves) {
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(Path("gone/model.pt"), at::ones({5})), absl::OkStatus());
  const absl::Status status = saver.Save(Path("model.pt"), at::ones({5}));
  EXPECT_THAT(std::string(status.message()), StartsWith(Path("gone/model.pt: ")));
  EXPECT_NE(access(Path("model.pt").c_str(), F_OK), 0);
  EXPECT_EQ(saver.Save(Path("model.pt"), at::ones({5})), absl::OkStatus());
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
}

TEST_F(AsyncSaverTest, WhatCannotBeSavedIsToldAtOnce) {
  AsyncSaver saver;
  const absl::Status status = saver.Save(Path("model.pt"), Value::Dict({{"bad", at::Tensor()}}));
  EXPECT_EQ(status, absl::InvalidArgumentError(Path("model.pt: [\"bad\"]: an undefined tensor")));
  EXPECT_EQ(saver.Wait(), absl::OkStatus()) << "nothing was begun";
}

TEST_F(AsyncSaverTest, ARelativePathIsThatOfTheMomentOfSave) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(Path("elsewhere"));
  AsyncSaver saver;
  std::filesystem::current_path(folder_.path());
  ASSERT_EQ(saver.Save("a.pt", at::full({16 << 20}, 1.0)), absl::OkStatus());
  std::filesystem::current_path(Path("elsewhere"));
  EXPECT_EQ(saver.Wait(), absl::OkStatus());
  ASSERT_EQ(saver.Save("gone/b.pt", 1), absl::OkStatus());
  EXPECT_THAT(std::string(saver.Wait().message()), StartsWith("gone/b.pt: ")) << "told as it was given";
  std::filesystem::current_path(before);
  EXPECT_THAT(folder_.Names(), ElementsAre("a.pt", "elsewhere"));
  EXPECT_THAT(folder_.Names("elsewhere"), ElementsAre());
}

TEST_F(AsyncSaverTest, TheErrorOfWhatFollowsIsTheSaves) {
  AsyncSaver saver;
  ASSERT_EQ(saver.Save(Path("a.pt"), 1, {}, [] { return absl::AbortedError("no more"); }), absl::OkStatus());
  EXPECT_EQ(saver.Wait(), absl::AbortedError(Path("a.pt: no more")));
  EXPECT_TRUE(Load(Path("a.pt")).ok());
}

TEST_F(AsyncSaverTest, TheDestructorWaits) {
  Held held;
  std::thread release;
  {
    AsyncSaver saver;
    ASSERT_EQ(saver.Save(Path("a.pt"), at::ones({5}), {}, held.Then()), absl::OkStatus());
    release = std::thread([&] { held.go.set_value(); });
  }
  release.join();
  EXPECT_TRUE(Load(Path("a.pt")).ok());
}

}  // namespace
}  // namespace lockstep::checkpoint
