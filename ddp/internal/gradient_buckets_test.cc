#include "lockstep/ddp/internal/gradient_buckets.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ScalarOps.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/kernels.h"

namespace lockstep::ddp::internal {
namespace {

using torch::Tensor;

GradientBucketsOptions Options() {
  GradientBucketsOptions options;
  options.allocate = [](int64_t numel, at::ScalarType dtype) -> absl::StatusOr<Tensor> {
    return torch::full({numel}, -1, dtype);
  };
  return options;
}

// Parameters "p0", "p1", ... of these shapes.
std::vector<ReducedParameter> Parameters(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<ReducedParameter> parameters;
  for (const std::vector<int64_t>& shape : shapes)
    parameters.push_back({"p" + std::to_string(parameters.size()), torch::ones(shape).requires_grad_()});
  return parameters;
}

const Tensor kNone;

TEST(GradientBuckets, TakesGradientsDividedAndDeliversTheAverages) {
  const auto parameters = Parameters({{2, 2}, {3}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{1, 0}});
  parameters[0].tensor.mutable_grad() = torch::full({2, 2}, 8.0f);
  buckets.Fill(0, kNone, 4);
  buckets.Fill(1, kNone, 4);  // it has no gradient
  EXPECT_TRUE(buckets[0].buffer.equal(torch::tensor({0.0f, 0.0f, 0.0f, 2.0f, 2.0f, 2.0f, 2.0f})));
  buckets.ReplaceGradients(0, kNone);
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::full({2, 2}, 2.0f)));
  buckets[0].buffer.mul_(3);  // as an all_reduce in place does
  buckets.Deliver(0, buckets[0].buffer);
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::full({2, 2}, 6.0f)));
  EXPECT_TRUE(parameters[1].tensor.grad().equal(torch::zeros({3})));
}

TEST(GradientBuckets, DeliversAResultThatIsNotInTheBuffer) {
  const auto parameters = Parameters({{2}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{0}});
  buckets.Fill(0, kNone, 1);
  buckets.Deliver(0, torch::tensor({5.0f, 6.0f}));
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::tensor({5.0f, 6.0f})));
  EXPECT_EQ(parameters[0].tensor.grad().data_ptr(), buckets[0].buffer.data_ptr());
}

TEST(GradientBuckets, ReplacesAGradientUnlessSomebodyElseHoldsIt) {
  const auto parameters = Parameters({{2}, {2}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{0, 1}});
  for (const ReducedParameter& parameter : parameters) parameter.tensor.mutable_grad() = torch::ones({2});
  const Tensor held = parameters[1].tensor.grad();
  for (const int i : {0, 1}) buckets.Fill(i, kNone, 1);
  buckets.ReplaceGradients(0, kNone);
  EXPECT_EQ(parameters[0].tensor.grad().data_ptr(), buckets[0].buffer.data_ptr());
  EXPECT_EQ(parameters[1].tensor.grad().data_ptr(), held.data_ptr());
  buckets[0].buffer.fill_(7);
  buckets.Deliver(0, buckets[0].buffer);
  EXPECT_TRUE(held.equal(torch::full({2}, 7.0f)));  // the holder of the parameter's gradient sees the average
}

TEST(GradientBuckets, CountsAutogradsOwnReferenceToAGradientThatArrives) {
  const auto parameters = Parameters({{2}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{0}});
  const Tensor arriving = torch::ones({2});
  parameters[0].tensor.mutable_grad() = arriving.detach();  // as AccumulateGrad makes it
  buckets.Fill(0, arriving, 1);
  buckets.ReplaceGradients(0, kNone);
  EXPECT_EQ(parameters[0].tensor.grad().data_ptr(), arriving.data_ptr());
  buckets.ReplaceGradients(0, arriving);
  EXPECT_EQ(parameters[0].tensor.grad().data_ptr(), buckets[0].buffer.data_ptr());
}

TEST(GradientBuckets, AccumulatesInPlaceAndDividesThere) {
  const auto parameters = Parameters({{2}});
  const UsedParameters used;
  for (const bool view : {false, true}) {
    GradientBucketsOptions options = Options();
    options.gradient_as_bucket_view = view;
    GradientBuckets buckets(&parameters, &used, options);
    buckets.Build({{0}});
    parameters[0].tensor.mutable_grad() = torch::full({2}, 6.0f);
    buckets.Fill(0, kNone, 2);
    buckets.ReplaceGradients(0, kNone);
    buckets.EndBackward();
    parameters[0].tensor.grad().add_(7);  // autograd, in the next backward
    buckets.Fill(0, kNone, 2);
    EXPECT_TRUE(buckets[0].buffer.equal(torch::full({2}, 5.0f)));
    EXPECT_EQ(parameters[0].tensor.grad().data_ptr(), buckets[0].buffer.data_ptr());
  }
}

TEST(GradientBuckets, LeavesTheGradientOfAParameterThatNobodyUsed) {
  const auto parameters = Parameters({{2}, {2}});
  UsedParameters used(2, torch::kCPU, /*each_step=*/true);
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{0, 1}});
  for (const ReducedParameter& parameter : parameters) parameter.tensor.mutable_grad() = torch::ones({2});
  used.Mark(0);
  for (const int i : {0, 1}) buckets.Fill(i, kNone, 1);
  buckets.ReplaceGradients(0, kNone);
  buckets[0].buffer.fill_(9);
  buckets.Deliver(0, buckets[0].buffer);
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::full({2}, 9.0f)));
  EXPECT_TRUE(parameters[1].tensor.grad().equal(torch::ones({2})));
}

TEST(GradientBuckets, MovesGradientsToTheBucketsThatReplaceOthers) {
  const auto parameters = Parameters({{2}, {2}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{0, 1}});
  EXPECT_EQ(buckets[0].for_hook.layout, 0);
  for (const int i : {0, 1}) parameters[i].tensor.mutable_grad() = torch::full({2}, 1.0f + i);
  for (const int i : {0, 1}) buckets.Fill(i, kNone, 1);
  buckets.ReplaceGradients(0, kNone);
  buckets.EndBackward();
  const Tensor held = parameters[1].tensor.grad();
  buckets.Build({{1}, {0}});
  EXPECT_EQ(buckets.size(), 2);
  EXPECT_EQ(buckets[1].for_hook.layout, 1);
  EXPECT_FALSE(buckets[0].for_hook.is_last);
  EXPECT_TRUE(buckets[1].for_hook.is_last);
  EXPECT_EQ(parameters[0].tensor.grad().data_ptr(), buckets[1].buffer.data_ptr());
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::ones({2})));
  EXPECT_TRUE(held.equal(torch::full({2}, 2.0f)));
  EXPECT_NE(held.data_ptr(), buckets[0].buffer.data_ptr());
}

TEST(GradientBuckets, ReducesInAnotherDtypeAndGivesGradientsTheirOwn) {
  const auto parameters = Parameters({{2}});
  const UsedParameters used;
  GradientBucketsOptions options = Options();
  options.reduce_dtype = torch::kHalf;
  GradientBuckets buckets(&parameters, &used, options);
  buckets.Build({{0}});
  parameters[0].tensor.mutable_grad() = torch::full({2}, 3.0f);
  buckets.Fill(0, kNone, 2);
  EXPECT_EQ(buckets[0].buffer.scalar_type(), torch::kHalf);
  buckets.ReplaceGradients(0, kNone);
  buckets.Deliver(0, buckets[0].buffer);
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::full({2}, 1.5f)));
}

TEST(GradientBuckets, HoldsASparseGradientAsItIs) {
  auto parameters = Parameters({{4, 2}});
  parameters[0].sparse = true;
  const UsedParameters used;
  GradientBucketsOptions options = Options();
  options.rank = 1;
  GradientBuckets buckets(&parameters, &used, options);
  buckets.Build({{0}});
  EXPECT_FALSE(buckets[0].buffer.defined());
  buckets.Fill(0, kNone, 2);
  EXPECT_EQ(buckets[0].buffer._nnz(), 0);
  EXPECT_EQ(buckets[0].buffer.sizes(), parameters[0].tensor.sizes());
  const Tensor rows = torch::tensor({3}, torch::kLong).view({1, 1});
  parameters[0].tensor.mutable_grad() = torch::sparse_coo_tensor(rows, torch::full({1, 2}, 8.0f), {4, 2});
  buckets.Fill(0, kNone, 2);
  buckets.Deliver(0, buckets[0].buffer);
  EXPECT_EQ(parameters[0].tensor.grad().to_dense()[3][1].item<float>(), 4);
  buckets.EndBackward();
  EXPECT_FALSE(buckets[0].buffer.defined());
  parameters[0].tensor.mutable_grad() = torch::ones({4, 2});
  EXPECT_EQ(TorchStatus("", [&] { buckets.Fill(0, kNone, 2); }),
            absl::InvalidArgumentError(
                "rank 1: parameter p0 belongs to an embedding with sparse gradients, but its gradient is dense"));
}

TEST(GradientBuckets, FillsWithZerosAndLeavesOldGradientsTheirNumbers) {
  const auto parameters = Parameters({{2}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{0}});
  parameters[0].tensor.mutable_grad() = torch::ones({2});
  buckets.Fill(0, kNone, 1);
  buckets.ReplaceGradients(0, kNone);
  buckets.FillWithZeros(0);
  EXPECT_TRUE(buckets[0].buffer.equal(torch::zeros({2})));
  EXPECT_TRUE(parameters[0].tensor.grad().equal(torch::ones({2})));
}

TEST(GradientBuckets, NamesTheParametersThatAreNotFinite) {
  const auto parameters = Parameters({{2}, {2}, {2}});
  const UsedParameters used;
  GradientBuckets buckets(&parameters, &used, Options());
  buckets.Build({{2, 1, 0}});
  parameters[1].tensor.mutable_grad() = torch::tensor({1.0f, std::numeric_limits<float>::infinity()});
  for (const int i : {0, 1, 2}) buckets.Fill(i, kNone, 1);
  EXPECT_EQ(buckets.NonFinite(0, buckets[0].buffer), (std::vector<int>{1}));
  buckets.FillWithZeros(0);
  EXPECT_TRUE(buckets.NonFinite(0, buckets[0].buffer).empty());
}

TEST(GradientBuckets, PassesOnTheErrorOfItsAllocator) {
  const auto parameters = Parameters({{2}});
  const UsedParameters used;
  GradientBucketsOptions options = Options();
  options.allocate = [](int64_t, at::ScalarType) -> absl::StatusOr<Tensor> {
    return absl::ResourceExhaustedError("no shared memory left");
  };
  GradientBuckets buckets(&parameters, &used, options);
  EXPECT_EQ(TorchStatus("", [&] { buckets.Build({{0}}); }), absl::ResourceExhaustedError("no shared memory left"));
}

at::Tensor Numbers(at::ScalarType dtype) {
  return at::randn({7, 33, 5}, at::detail::createCPUGenerator(1), at::kDouble).to(dtype);
}

TEST(Scale, RoundsAsTheOperatorDoes) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double factor : {1.0, 1.0 / 2, 1.0 / 3, 1.0 / 7}) {
      const at::Tensor in = Numbers(dtype);
      for (const at::Tensor& from : {in, in.transpose(0, 2), in.slice(1, 0, 33, 2)}) {
        at::Tensor expected = at::empty_like(from), out = at::empty_like(from);
        at::mul_out(expected, from, at::native::wrapped_scalar_tensor(factor));
        Scale(out, from, factor);
        EXPECT_TRUE(out.equal(expected)) << dtype << " " << factor;
        at::Tensor contiguous = at::empty(from.sizes(), from.options());
        Scale(contiguous, from, factor);
        EXPECT_TRUE(contiguous.equal(expected));
      }
      const at::Tensor in_place = in.clone();
      Scale(in_place, in_place, factor);
      EXPECT_TRUE(in_place.equal(in * factor));
    }
  }
}

TEST(Copy, CopiesWhateverTheLayouts) {
  const at::Tensor in = Numbers(at::kFloat);
  for (const at::Tensor& from : {in, in.transpose(0, 2), in.slice(1, 0, 33, 2), in.to(at::kDouble)}) {
    const at::Tensor out = at::empty(from.sizes(), at::kFloat);
    Copy(out, from);
    EXPECT_TRUE(out.equal(from.to(at::kFloat)));
  }
}

TEST(HasNonFinite, FindsOneOfManyAndNothingElse) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kComplexFloat}) {
    at::Tensor numbers = Numbers(dtype);
    numbers.view(-1)[0] = c10::isComplexType(dtype) ? 1e30 : dtype == at::kHalf ? 65504.0 : 3e38;
    EXPECT_FALSE(HasNonFinite(numbers)) << dtype;
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      for (const int64_t where : {int64_t{0}, int64_t{500}, numbers.numel() - 1}) {
        at::Tensor spoilt = numbers.clone();
        spoilt.view(-1)[where] = bad;
        EXPECT_TRUE(HasNonFinite(spoilt)) << dtype << " " << bad << " " << where;
        EXPECT_TRUE(HasNonFinite(spoilt.transpose(0, 2)));
      }
    }
    EXPECT_FALSE(HasNonFinite(numbers.slice(0, 0, 0)));
  }
  EXPECT_FALSE(HasNonFinite(at::full({3}, 1 << 30, at::kInt)));
}

}  // namespace
}  // namespace lockstep::ddp::internal
