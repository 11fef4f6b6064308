#include "lockstep/ddp/clip_grad_norm.h"

#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/comm/testing/thread_backend.h"
#include "lockstep/comm/testing/thread_hub.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A parameter whose gradient is given.
torch::Tensor WithGradient(const torch::Tensor& gradient) {
  torch::Tensor parameter = torch::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient.clone();
  return parameter;
}

// Three with gradients, one without.
std::vector<torch::Tensor> Parameters(c10::ScalarType dtype = torch::kFloat) {
  std::vector<torch::Tensor> parameters;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 7}, {3}, {2, 3, 4}}) {
    const auto seed = static_cast<uint64_t>(parameters.size());
    parameters.push_back(
        WithGradient(torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble).to(dtype)));
  }
  parameters.push_back(torch::zeros({2}).requires_grad_());
  return parameters;
}

ClipGradNormOptions NormType(double norm_type) {
  ClipGradNormOptions options;
  options.norm_type = norm_type;
  return options;
}

// make_clip_grad_norm_golden.py's.
std::vector<torch::Tensor> GoldenParameters(const std::vector<c10::ScalarType>& dtypes, size_t count) {
  const std::vector<std::vector<int64_t>> shapes = {{5, 7}, {3}, {40, 50}};
  std::vector<torch::Tensor> parameters;
  for (size_t i = 0; i < count; ++i) {
    const torch::Tensor values = torch::randn(shapes[i], at::detail::createCPUGenerator(i), torch::kDouble);
    parameters.push_back(WithGradient(values.to(dtypes[i % dtypes.size()])));
  }
  return parameters;
}

void ExpectGolden(ProcessGroup& group, const std::vector<torch::Tensor>& parameters, double norm_type,
                  const std::vector<double>& expected) {
  const absl::StatusOr<double> norm = ClipGradNorm(group, parameters, 0.3, NormType(norm_type));
  ASSERT_TRUE(norm.ok()) << norm.status();
  std::vector<double> found = {*norm};
  for (const torch::Tensor& parameter : parameters) {
    for (int64_t i = 0; i < 3; ++i) found.push_back(parameter.grad().flatten()[i].item<double>());
  }
  EXPECT_EQ(found, expected);
}

TEST(ClipGradNorm, GivesTheBitsOfPythonsClipGradNorm) {
#if !LOCKSTEP_LIBTORCH_AT_LEAST(2, 11)
  GTEST_SKIP() << "the numbers are of PyTorch 2.11, and older releases add the squares in another order";
#endif
  const std::map<std::string, std::vector<c10::ScalarType>> dtypes = {
      {"float", {torch::kFloat}},
      {"double", {torch::kDouble}},
      {"half", {torch::kHalf}},
      {"bfloat16", {torch::kBFloat16}},
      {"mixed", {torch::kFloat, torch::kBFloat16, torch::kDouble}}};
  const auto golden = nlohmann::json::parse(std::ifstream("ddp/testdata/clip_grad_norm_golden.json"));
  EXPECT_EQ(golden.size(), 50);
  for (const auto& named : dtypes) {
    for (const size_t count : {1, 3}) {
      for (const double norm_type : {2.0, 1.0, 3.5, kInfinity, 0.0}) {
        const std::string name = absl::StrCat(named.first, ", ", count, " gradients, norm_type ", norm_type);
        SCOPED_TRACE(name);
        const auto expected = golden.at(name).get<std::vector<double>>();
        const auto body = [&](ProcessGroup& group) {
          ExpectGolden(group, GoldenParameters(named.second, count), norm_type, expected);
        };
        EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
      }
    }
  }
}

TEST(ClipGradNorm, LeavesGradientsBelowTheLimitAsTheyAre) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    const auto body = [&](ProcessGroup& group) {
      const std::vector<torch::Tensor> parameters = Parameters(dtype), untouched = Parameters(dtype);
      EXPECT_TRUE(ClipGradNorm(group, parameters, 1000).ok());
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(parameters[i].grad().equal(untouched[i].grad())) << i;
      EXPECT_FALSE(parameters[3].grad().defined());
    };
    EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
  }
}

TEST(ClipGradNorm, OfSparseGradientsIsThatOfTheirCoalescedValues) {
  const auto body = [](ProcessGroup& group) {
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(6, 1).sparse(true));
    words(torch::tensor({1, 2, 2})).sum().backward();  // 1 and 2
    for (const double norm_type : {2.0, kInfinity}) {
      const std::vector<torch::Tensor> parameters = {WithGradient(words->weight.grad())};
      EXPECT_NEAR(*ClipGradNorm(group, parameters, 1.0, NormType(norm_type)), norm_type == 2 ? std::sqrt(5.0) : 2,
                  1e-6);
      EXPECT_NEAR(parameters[0].grad().to_dense().norm(norm_type).item<double>(), 1, 1e-5);
    }
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ClipGradNorm, ScalesByTheNormOfRank0) {
  std::vector<torch::Tensor> gradients(3);
  const auto body = [&](ProcessGroup& group) {
    // Apart by less than a thousandth, as rounding may put them.
    const std::vector<torch::Tensor> parameters = {WithGradient(torch::full({4}, 2.0 + 1e-4 * group.rank()))};
    const absl::StatusOr<double> norm = ClipGradNorm(group, parameters, 1.0);
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, 4);
    EXPECT_NEAR(parameters[0].grad()[0].item<double>(), (2.0 + 1e-4 * group.rank()) / 4, 1e-6);
  };
  EXPECT_EQ(RunRanksOk(3, body), absl::OkStatus());
}

TEST(ClipGradNorm, AllowsForTheRoundingOfBfloat16) {
  const auto body = [](ProcessGroup& group) {
    // 1 and the next number.
    const torch::Tensor gradient = torch::full({1}, 1 + group.rank() / 128.0).to(torch::kBFloat16);
    EXPECT_EQ(*ClipGradNorm(group, {WithGradient(gradient)}, 1.0), 1);
    EXPECT_FALSE(ClipGradNorm(group, {WithGradient(gradient.to(torch::kFloat))}, 1.0).ok());
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ClipGradNorm, TellsEveryRankThatGradientsDiffer) {
  const auto body = [](ProcessGroup& group) {
    const std::vector<torch::Tensor> parameters = {WithGradient(torch::full({4}, group.rank() == 2 ? 3.0 : 1.0))};
    const absl::Status status = ClipGradNorm(group, parameters, 0.5).status();
    EXPECT_EQ(status, absl::FailedPreconditionError(
                          absl::StrCat("rank ", group.rank(),
                                       " of 3: ClipGradNorm: expected the same gradients on every rank, found a norm "
                                       "of 2 on rank 0, 6 on rank 2; no gradient was changed")));
    EXPECT_EQ(parameters[0].grad()[0].item<double>(), group.rank() == 2 ? 3.0 : 1.0);
    EXPECT_EQ(group.Barrier(), absl::OkStatus());  // The group goes on.
  };
  EXPECT_EQ(RunRanksOk(3, body), absl::OkStatus());
}

TEST(ClipGradNorm, TellsEveryRankThatOneAloneHasANan) {
  const auto body = [](ProcessGroup& group) {
    const std::vector<torch::Tensor> parameters = {WithGradient(torch::full({4}, group.rank() == 1 ? kNan : 1.0))};
    const absl::Status status = ClipGradNorm(group, parameters, 0.5).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("a norm of 2 on rank 0, nan on rank 1;"));
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ClipGradNorm, ListsEightRanksOfMany) {
  const auto body = [](ProcessGroup& group) {
    const std::vector<torch::Tensor> parameters = {WithGradient(torch::full({1}, group.rank() + 1.0))};
    const absl::Status status = ClipGradNorm(group, parameters, 0.5).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("8 on rank 7, 9 on rank 8 and so on, 10 ranks;"));
  };
  EXPECT_EQ(RunRanksOk(11, body), absl::OkStatus());
}

TEST(ClipGradNorm, ScalesByANonFiniteNormAsPyTorchDoes) {
  for (const double bad : {kInfinity, kNan}) {
    std::vector<torch::Tensor> expected = Parameters();
    expected[1].mutable_grad()[0] = bad;
    torch::nn::utils::clip_grad_norm_(expected, 1.0);
    const auto body = [&](ProcessGroup& group) {
      std::vector<torch::Tensor> parameters = Parameters();
      parameters[1].mutable_grad()[0] = bad;
      const absl::StatusOr<double> norm = ClipGradNorm(group, parameters, 1.0);
      ASSERT_TRUE(norm.ok()) << norm.status();
      EXPECT_FALSE(std::isfinite(*norm));
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(torch::allclose(parameters[i].grad(), expected[i].grad(), 0, 0, /*equal_nan=*/true)) << i;
      }
    };
    EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
  }
}

TEST(ClipGradNorm, NamesTheFirstNonFiniteGradientIfAsked) {
  ClipGradNormOptions options;
  options.error_if_nonfinite = true;
  const auto body = [&](ProcessGroup& group) {
    std::vector<torch::Tensor> parameters = Parameters();
    parameters.insert(parameters.begin(), torch::zeros({2}).requires_grad_());  // no gradient, but counted
    parameters[2].mutable_grad()[1] = kNan;
    parameters[3].mutable_grad().fill_(kInfinity);
    const torch::Tensor before = parameters[1].grad().clone();
    const absl::Status status = ClipGradNorm(group, parameters, 0.1, options).status();
    EXPECT_EQ(status, absl::FailedPreconditionError(absl::StrCat(
                          "rank ", group.rank(),
                          " of 2: ClipGradNorm: expected a finite norm of order 2 of the gradients, found nan, first "
                          "the gradient of parameter 2 on rank 0; no gradient was changed")));
    EXPECT_TRUE(parameters[1].grad().equal(before));
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ClipGradNorm, SaysIfOnlyTheTotalOverflows) {
  ClipGradNormOptions options;
  options.error_if_nonfinite = true;
  const auto body = [&](ProcessGroup& group) {
    const torch::Tensor large = torch::full({1}, 3e38);
    const absl::Status status = ClipGradNorm(group, {WithGradient(large), WithGradient(large)}, 1.0, options).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("found inf, though the norm of each gradient is finite"));
  };
  EXPECT_EQ(RunRanksOk(1, body), absl::OkStatus());
}

TEST(ClipGradNorm, CombinesTheNormsOfShares) {
  for (const double norm_type : {2.0, 1.0, 3.5, kInfinity, 0.0}) {
    SCOPED_TRACE(norm_type);
    const double tolerance = norm_type == 0 ? 1e-6 : 1e-13;  // with 0 LibTorch scales by a float
    std::vector<torch::Tensor> expected = Parameters(torch::kDouble);
    const double expected_norm = torch::nn::utils::clip_grad_norm_(expected, 0.5, norm_type);
    ClipGradNormOptions options = NormType(norm_type);
    options.sharded = true;
    const auto body = [&](ProcessGroup& group) {
      const std::vector<torch::Tensor> all = Parameters(torch::kDouble);
      std::vector<torch::Tensor> share;  // 0 and 2; 1; none
      for (int i = group.rank(); i < 3 && group.rank() < 2; i += 2) share.push_back(all[i]);
      const absl::StatusOr<double> norm = ClipGradNorm(group, share, 0.5, options);
      ASSERT_TRUE(norm.ok()) << norm.status();
      EXPECT_NEAR(*norm, expected_norm, 1e-13 * expected_norm);
      for (int i = group.rank(); i < 3 && group.rank() < 2; i += 2) {
        EXPECT_TRUE(torch::allclose(all[i].grad(), expected[i].grad(), tolerance, 0)) << i;
      }
    };
    EXPECT_EQ(RunRanksOk(3, body), absl::OkStatus());
  }
}

TEST(ClipGradNorm, NamesTheShareThatIsNotFinite) {
  for (const double norm_type : {2.0, kInfinity}) {
    ClipGradNormOptions options = NormType(norm_type);
    options.sharded = true;
    options.error_if_nonfinite = true;
    const auto body = [&](ProcessGroup& group) {
      std::vector<torch::Tensor> share = {WithGradient(torch::ones({2})), WithGradient(torch::ones({2}))};
      if (group.rank() == 1) share[1].mutable_grad().fill_(kNan);
      const absl::Status status = ClipGradNorm(group, share, 1.0, options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(status.message()), HasSubstr("found nan, first the gradient of parameter 1 on rank 1"));
    };
    EXPECT_EQ(RunRanksOk(3, body), absl::OkStatus());
  }
}

TEST(ClipGradNorm, CountsATiedWeightOnce) {
  const auto body = [](ProcessGroup& group) {
    const torch::Tensor tied = WithGradient(torch::full({4}, 1.0));
    const absl::StatusOr<double> norm = ClipGradNorm(group, {tied, tied}, 1.0);
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, 2);
    EXPECT_NEAR(tied.grad()[0].item<double>(), 0.5, 1e-6);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ClipGradNorm, IsZeroWithoutGradients) {
  const auto body = [](ProcessGroup& group) {
    EXPECT_EQ(*ClipGradNorm(group, {}, 1.0), 0);
    EXPECT_EQ(*ClipGradNorm(group, {torch::zeros({2}).requires_grad_()}, 1.0), 0);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ClipGradNorm, RefusesWrongArgumentsBeforeItSends) {
  const auto body = [](ProcessGroup& group) {
    if (group.rank() != 0) return absl::OkStatus();  // Rank 0 would wait for the others in any collective.
    EXPECT_EQ(ClipGradNorm(group, {}, 1.0, NormType(-1)).status(),
              absl::InvalidArgumentError("rank 0 of 2: ClipGradNorm: expected a norm_type of at least 0, found -1"));
    EXPECT_EQ(ClipGradNorm(group, {}, kNan).status(),
              absl::InvalidArgumentError("rank 0 of 2: ClipGradNorm: expected a max_norm of at least 0, found nan"));
    return absl::OkStatus();
  };
  for (const absl::Status& status : RunRanks(2, body)) EXPECT_EQ(status, absl::OkStatus());
}

// A rank of two whose other rank takes no part.
std::unique_ptr<ProcessGroup> GroupWithAPythonRank(const comm::testing::ThreadHub& hub) {
  return *ProcessGroup::FromC10d({{c10::DeviceType::CPU, comm::testing::MakeThreadBackend(hub, 1)}}, nullptr);
}

TEST(ClipGradNorm, SendsNothingToRanksThatMayBePythons) {
  const comm::testing::ThreadHub hub(2, absl::Seconds(1));
  const auto group = GroupWithAPythonRank(hub);
  const std::vector<torch::Tensor> parameters = Parameters(), alone = Parameters();
  const absl::StatusOr<double> norm = ClipGradNorm(*group, parameters, 0.5);
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_EQ(RunRanksOk(1, [&](ProcessGroup& one) { EXPECT_EQ(*ClipGradNorm(one, alone, 0.5), *norm); }),
            absl::OkStatus());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(parameters[i].grad().equal(alone[i].grad())) << i;
}

TEST(ClipGradNorm, NamesItsOwnRankWhereItSendsNothing) {
  const comm::testing::ThreadHub hub(2, absl::Seconds(1));
  const auto group = GroupWithAPythonRank(hub);
  ClipGradNormOptions options;
  options.error_if_nonfinite = true;
  const torch::Tensor parameter = WithGradient(torch::full({2}, kNan));
  EXPECT_THAT(std::string(ClipGradNorm(*group, {parameter}, 1.0, options).status().message()),
              HasSubstr("first the gradient of parameter 0 on rank 1"));
}

TEST(ClipGradNorm, SharesNeedAllRanks) {
  const comm::testing::ThreadHub hub(2, absl::Seconds(1));
  const auto group = GroupWithAPythonRank(hub);
  ClipGradNormOptions options;
  options.sharded = true;
  EXPECT_EQ(ClipGradNorm(*group, {}, 1.0, options).status(),
            absl::InvalidArgumentError("rank 1 of 2: ClipGradNorm: sharded needs all ranks, but the group may have "
                                       "Python ranks: expected sharded = false"));
}

}  // namespace
}  // namespace lockstep::ddp
