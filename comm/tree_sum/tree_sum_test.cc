#include "lockstep/comm/tree_sum/tree_sum.h"

#include <ATen/ATen.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

// Numbers of very different sizes, so that another order gives other bits.
at::Tensor Leaf(int leaf, int64_t numel, at::ScalarType dtype) {
  const at::Tensor seed = at::arange(numel, at::kDouble).add(1.37 * leaf + 1);
  const at::Tensor numbers = seed.mul(12.9898).sin().mul(seed.mul(78.233).sin().mul(8).exp2());
  if (!at::isComplexType(dtype)) return numbers.to(dtype);
  return at::complex(numbers, numbers.flip(0)).to(dtype);
}

using LeafFunction = at::Tensor (*)(int leaf, int64_t numel, at::ScalarType dtype);

// The definition, in ATen.
at::Tensor Reference(int begin, int end, int64_t numel, at::ScalarType dtype, LeafFunction leaf = Leaf) {
  if (end - begin == 1) return leaf(begin, numel, dtype);
  int p = 1;
  while (2 * p < end - begin) p *= 2;
  return Reference(begin, begin + p, numel, dtype, leaf) + Reference(begin + p, end, numel, dtype, leaf);
}

// This rank's partial sums.
std::vector<at::Tensor> OwnSums(const TreeSum& sum, int64_t numel, at::ScalarType dtype, LeafFunction leaf = Leaf) {
  std::vector<at::Tensor> sums;
  for (const PartialSum own : sum.own_sums()) sums.push_back(Reference(own.begin, own.end, numel, dtype, leaf));
  return sums;
}

// A NaN counts as the same as any other: its sign depends on the instructions that add.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    return at::where(tensor.isnan(), at::zeros_like(tensor), tensor).contiguous().view(at::kByte);
  };
  return a.dtype() == b.dtype() && at::equal(a.isnan(), b.isnan()) && at::equal(bytes(a), bytes(b));
}

void ExpectTheTree(ProcessGroup& group, const std::vector<int>& bounds, int64_t numel, at::ScalarType dtype,
                   bool shared, LeafFunction leaf = Leaf) {
  const absl::StatusOr<TreeSum> sum = TreeSum::Create(&group, bounds);
  ASSERT_EQ(sum.status(), absl::OkStatus());
  std::vector<at::Tensor> sums = OwnSums(*sum, numel, dtype, leaf);
  if (shared) {
    for (at::Tensor& own : sums) own = group.AllocateShared({numel}, dtype)->copy_(own);
  }
  const int leaves = bounds.back();
  const at::Tensor output = shared ? sums.back() : at::zeros({numel}, dtype);
  EXPECT_EQ(sum->Start(output, sums, leaves).Wait(), absl::OkStatus());
  EXPECT_TRUE(SameBits(output, Reference(0, leaves, numel, dtype, leaf).div(leaves)))
      << leaves << " leaves of " << numel << " " << c10::toString(dtype) << " on " << group.size() << " ranks, over "
      << shared;
}

// Random bounds of `leaves` leaves, the same on every rank.
std::vector<int> RandomBounds(std::mt19937& random, int leaves, int ranks) {
  std::vector<int> bounds = {0};
  for (int rank = 1; rank < ranks; ++rank) {
    const int most = leaves - (ranks - rank);
    bounds.push_back(bounds.back() + 1 + static_cast<int>(random() % (most - bounds.back())));
  }
  bounds.push_back(leaves);
  return bounds;
}

class TreeSumTest : public ::testing::TestWithParam<std::string> {
 protected:
  void OnRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) const {
    const auto checked = [&](ProcessGroup& group) {
      body(group);
      EXPECT_EQ(group.failure(), absl::OkStatus());
      return absl::OkStatus();
    };
    InitOptions options;
    options.backend = GetParam();
    const auto results =
        GetParam() == "threads" ? testing::RunRanks(ranks, checked) : testing::InitRanks(options, ranks, checked);
    for (const absl::Status& result : results) EXPECT_EQ(result, absl::OkStatus());
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, TreeSumTest, ::testing::Values("threads", "shm", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(TreeSumTest, IsTheSumOfTheTreeForAnyBlocks) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    OnRanks(ranks, [&](ProcessGroup& group) {
      std::mt19937 random(ranks);
      for (const int leaves : {ranks, ranks + 1, 7, 8, 16, 33}) {
        const std::vector<int> bounds = RandomBounds(random, leaves + ranks, ranks);
        for (const bool shared : {false, true}) ExpectTheTree(group, bounds, 1001, at::kFloat, shared);
      }
    });
  }
}

TEST_P(TreeSumTest, IsTheSumOfTheTreeForEveryDtypeAndSize) {
  OnRanks(3, [](ProcessGroup& group) {
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kComplexFloat, at::kComplexDouble}) {
      for (const int64_t numel : {0, 1, 2, 1000, 70001}) {
        ExpectTheTree(group, EvenBounds(8, 3), numel, dtype, /*shared=*/dtype != at::kDouble);
      }
    }
  });
}

// Element i of all leaves tries one case, and leaf j has the numbers of that case in turn.
at::Tensor SpecialLeaf(int leaf, int64_t numel, at::ScalarType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // The limits of the smallest dtype here; bfloat16's and float's least positive numbers are about the same.
  const double most = dtype == at::kHalf ? 60000 : dtype == at::kDouble ? 1.7e308 : 3.3e38;
  const double least = dtype == at::kHalf ? 1e-7 : dtype == at::kDouble ? 1e-320 : 1e-39;
  const std::vector<std::vector<double>> cases = {
      {-0.0},                         // stays -0
      {-0.0, 0.0},                    // 0
      {1, -1, -0.0},                  // 0
      {kInfinity, 1},                 // infinity
      {1, -kInfinity, 2},             // -infinity
      {1, 2, kInfinity, -kInfinity},  // NaN
      {std::numeric_limits<double>::quiet_NaN(), 1, 2},
      {least, -2 * least, 3 * least},  // denormals
      {least},
      {most, most, -most},  // finite or infinite, by the order
      {most, -most, least},
  };
  std::vector<double> numbers;
  for (int64_t i = 0; i < numel; ++i) {
    const std::vector<double>& of_case = cases[i % cases.size()];
    numbers.push_back(of_case[leaf % of_case.size()]);
  }
  return at::tensor(numbers, at::kDouble).to(dtype);
}

TEST_P(TreeSumTest, SpecialNumbersHaveTheBitsOfTheTree) {
  OnRanks(3, [](ProcessGroup& group) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const int leaves : {3, 4, 7, 16}) {
        ExpectTheTree(group, EvenBounds(leaves, 3), 200, dtype, /*shared=*/leaves % 2 == 0, SpecialLeaf);
      }
    }
  });
}

TEST_P(TreeSumTest, SeveralSumsMayBeUnderWay) {
  OnRanks(2, [](ProcessGroup& group) {
    const absl::StatusOr<TreeSum> sum = TreeSum::Create(&group, {0, 3, 4});
    ASSERT_EQ(sum.status(), absl::OkStatus());
    std::vector<PendingTreeSum> pending;
    std::vector<at::Tensor> outputs;
    for (int64_t numel = 1; numel < 40; numel += 7) {
      outputs.push_back(at::zeros({numel}));
      pending.push_back(sum->Start(outputs.back(), OwnSums(*sum, numel, at::kFloat), 4));
    }
    for (PendingTreeSum& one : pending) EXPECT_EQ(one.Advance(), absl::OkStatus());
    for (PendingTreeSum& one : pending) {
      EXPECT_EQ(one.Wait(), absl::OkStatus());
      EXPECT_TRUE(one.IsCompleted());
      EXPECT_EQ(one.Wait(), absl::OkStatus()) << "again";
    }
    for (const at::Tensor& output : outputs) {
      EXPECT_TRUE(SameBits(output, Reference(0, 4, output.numel(), at::kFloat).div(4)));
    }
  });
}

TEST_P(TreeSumTest, WrongArgumentsAreRefusedBeforeAnythingIsSent) {
  OnRanks(2, [](ProcessGroup& group) {
    const std::string rank = absl::StrCat("rank ", group.rank(), ": tree_sum: ");
    for (const std::vector<int>& bounds :
         std::vector<std::vector<int>>{{}, {0, 1}, {0, 2, 2}, {1, 2, 3}, {0, 1, 2, 3}}) {
      EXPECT_THAT(std::string(TreeSum::Create(&group, bounds).status().message()),
                  HasSubstr(absl::StrCat(rank, "expected 3 ascending bounds from 0 on, one block a rank, found ")));
    }
    const absl::StatusOr<TreeSum> sum = TreeSum::Create(&group, {0, 1, 2});
    const auto error = [&](const at::Tensor& output, std::vector<at::Tensor> sums, int divisor) {
      const absl::Status status = sum->Start(output, std::move(sums), divisor).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      return std::string(status.message());
    };
    const at::Tensor three = at::zeros({3});
    EXPECT_EQ(error(three, {three, three}, 2), rank + "expected 1 partial sums, found 2");
    EXPECT_EQ(error(three, {three}, 0), rank + "expected a divisor of at least 1, found 0");
    for (const at::Tensor& other : {at::zeros({4}), at::zeros({3}, at::kDouble), at::zeros({3}, at::kLong),
                                    at::zeros({6}).slice(0, 0, 6, 2), at::Tensor()}) {
      EXPECT_THAT(error(three, {other}, 2), HasSubstr("partial sum 0 is "));
    }
    EXPECT_THAT(error(at::zeros({3}, at::kInt), {three}, 2), HasSubstr("the output is Int [3] on cpu"));
  });
}

TEST_P(TreeSumTest, ALostRankEndsTheSum) {
  const auto body = [&](ProcessGroup& group) -> absl::Status {
    if (group.rank() == 1) {
      group.Abort(absl::InternalError("rank 1 is out"));
      return absl::OkStatus();
    }
    const absl::StatusOr<TreeSum> sum = TreeSum::Create(&group, {0, 1, 2});
    return sum->Start(at::zeros({5}), {at::zeros({5})}, 2).Wait();
  };
  if (GetParam() == "threads") {  // they see that rank 1 has left, and not why
    EXPECT_NE(testing::RunRanks(2, body)[0], absl::OkStatus());
    return;
  }
  InitOptions options;
  options.backend = GetParam();
  EXPECT_THAT(std::string(testing::InitRanks(options, 2, body)[0].message()), HasSubstr("rank 1 is out"));
}

}  // namespace
}  // namespace lockstep::comm
