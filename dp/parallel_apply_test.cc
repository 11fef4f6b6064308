#include "lockstep/dp/parallel_apply.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <exception>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "lockstep/base/testing/thread_budget.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::dp {
namespace {

using ::lockstep::testing::ThreadBudget;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<c10::Device> Cpus(size_t count) { return std::vector<c10::Device>(count, c10::Device(c10::kCPU)); }

std::vector<std::tuple<int>> Numbers(int count) {
  std::vector<std::tuple<int>> numbers;
  for (int i = 0; i < count; ++i) numbers.emplace_back(i);
  return numbers;
}

// f(i) on each of `count` CPUs.
template <typename Result>
std::vector<Result> OnAll(int count, const std::function<Result(int)>& f) {
  return ParallelApply(std::vector<std::function<Result(int)>>(count, f), Numbers(count), Cpus(count));
}

TEST(ParallelApply, GivesEachFunctionItsArguments) {
  EXPECT_THAT(OnAll<int>(3, [](int i) { return 10 * i; }), ElementsAre(0, 10, 20));
}

TEST(ParallelApply, CallsModules) {
  const torch::nn::Linear a(2, 3), b(2, 3);
  const at::Tensor x = at::rand({4, 2});
  const auto outputs =
      ParallelApply(std::vector<torch::nn::Linear>{a, b}, std::vector<std::tuple<at::Tensor>>{x, x}, Cpus(2));
  EXPECT_TRUE(outputs[1].equal(torch::nn::Linear(b)(x)));
  const auto by_pointer = ParallelApply(std::vector<std::shared_ptr<torch::nn::LinearImpl>>{a.ptr()},
                                        std::vector<std::tuple<at::Tensor>>{x}, Cpus(1));
  EXPECT_TRUE(by_pointer[0].equal(outputs[0]));
}

// All have to be there at once to pass.
TEST(ParallelApply, RunsEachOnAThreadOfItsOwn) {
  auto* const barrier = new absl::Barrier(4);
  const auto ids = OnAll<std::thread::id>(4, [&](int) {
    if (barrier->Block()) delete barrier;
    return std::this_thread::get_id();
  });
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 4);
}

TEST(ParallelApply, RunsOnTheCallersThreadWhatTheSystemRefusesAThreadFor) {
  const auto caller = std::this_thread::get_id();
  for (const int given : {0, 1, 2}) {
    const ThreadBudget few(given);
    EXPECT_THAT(OnAll<bool>(3, [&](int) { return std::this_thread::get_id() == caller; }),
                ElementsAre(given < 1, given < 2, true));
  }
}

TEST(ParallelApply, CarriesGradModeOver) {
  EXPECT_THAT(OnAll<bool>(2, [](int) { return at::GradMode::is_enabled(); }), ElementsAre(true, true));
  const at::NoGradGuard no_grad;
  EXPECT_THAT(OnAll<bool>(2, [](int) { return at::GradMode::is_enabled(); }), ElementsAre(false, false));
}

TEST(ParallelApply, CarriesInferenceModeOver) {
  const c10::InferenceMode inference;
  EXPECT_THAT(OnAll<bool>(2, [](int) { return c10::InferenceMode::is_enabled(); }), ElementsAre(true, true));
}

TEST(ParallelApply, CarriesAutocastOver) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::increment_nesting();
  const auto dtypes = OnAll<at::ScalarType>(2, [](int) {
    return at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type();
  });
  const auto caches = OnAll<bool>(2, [](int) { return at::autocast::is_autocast_cache_enabled(); });
  at::autocast::decrement_nesting();
  at::autocast::clear_cache();
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  EXPECT_THAT(dtypes, ElementsAre(at::kHalf, at::kHalf));
  EXPECT_THAT(caches, ElementsAre(false, false));
  EXPECT_THAT(OnAll<bool>(1, [](int) { return at::autocast::is_autocast_enabled(at::kCPU); }), ElementsAre(false));
}

TEST(ParallelApply, SharesTheIntraOpThreadsAmongCpus) {
  const int before = at::get_num_threads();
  at::set_num_threads(4);
  EXPECT_THAT(OnAll<int>(2, [](int) { return at::get_num_threads(); }), ElementsAre(2, 2));
  EXPECT_THAT(OnAll<int>(3, [](int) { return at::get_num_threads(); }), ElementsAre(1, 1, 1));
  EXPECT_EQ(at::get_num_threads(), 4);
  int of_a_new_thread = 0;
  std::thread([&] { of_a_new_thread = at::get_num_threads(); }).join();
  EXPECT_EQ(of_a_new_thread, 4);
  at::set_num_threads(before);
}

TEST(ParallelApply, NamesReplicaAndDeviceOfAnErrorAndKeepsItsType) {
  const auto f = [](int i) -> int {
    TORCH_CHECK_INDEX(i != 1, "there is no such row");
    return i;
  };
  try {
    OnAll<int>(3, f);
    FAIL() << "nothing was thrown";
  } catch (const c10::IndexError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                AllOf(HasSubstr("there is no such row"), HasSubstr("in replica 1 on device cpu")));
  }
}

TEST(ParallelApply, NestsOtherExceptionsInOneThatNamesTheReplica) {
  const auto f = [](int i) -> int { return i == 2 ? throw std::out_of_range("far away") : i; };
  try {
    OnAll<int>(3, f);
    FAIL() << "nothing was thrown";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.status().message(), "in replica 2 on device cpu: far away");
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
}

TEST(ParallelApply, NamesTheReplicaOfAStatus) {
  const auto f = [](int) -> int { throw StatusError(absl::DataLossError("a bit is wrong")); };
  EXPECT_EQ(TorchStatus("", [&] { OnAll<int>(1, f); }),
            absl::DataLossError("in replica 0 on device cpu: a bit is wrong"));
}

TEST(ParallelApply, ThrowsWhenAllHaveEndedAndWhatTheFirstThrew) {
  std::atomic<int> ended{0};
  const auto f = [&](int i) -> int {
    if (i == 0) {
      while (ended < 2) std::this_thread::yield();
    }
    ++ended;
    if (i < 2) throw std::runtime_error("error of " + std::to_string(i));
    return i;
  };
  EXPECT_THAT(TorchStatus("", [&] { OnAll<int>(3, f); }).message(), HasSubstr("error of 0"));
  EXPECT_EQ(ended, 3);
}

TEST(ParallelApply, NeedsAnInputAndADeviceForEach) {
  const std::vector<std::function<int(int)>> functions(2, [](int i) { return i; });
  EXPECT_EQ(TorchStatus("", [&] { ParallelApply(functions, Numbers(3), Cpus(2)); }).message(),
            "ParallelApply: expected an input and a device for each of 2 functions, found 3 inputs and 2 devices");
}

}  // namespace
}  // namespace lockstep::dp
