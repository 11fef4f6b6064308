#include "lockstep/ddp/sync_batch_norm/sync_batch_norm.h"

#include <torch/torch.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanks;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;
using torch::nn::BatchNormOptions;

constexpr int64_t kChannels = 3;

torch::Tensor Values(std::vector<int64_t> shape, uint64_t seed) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble);
}

// Weights and running statistics that are not what a new layer has.
template <typename Layer>
void Fill(Layer& layer) {
  layer.to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  if (layer.weight.defined()) layer.weight.copy_(Values({kChannels}, 11));
  if (layer.bias.defined()) layer.bias.copy_(Values({kChannels}, 12));
  if (layer.running_mean.defined()) layer.running_mean.copy_(Values({kChannels}, 13));
  if (layer.running_var.defined()) layer.running_var.copy_(Values({kChannels}, 14).square());
}

void ExpectNear(const torch::Tensor& actual, const torch::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.defined(), expected.defined());
  if (!actual.defined() || actual.numel() == 0) return;
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_LE((actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>(), tolerance);
}

struct Case {
  std::vector<int64_t> rows;   // a rank
  std::vector<int64_t> inner;  // dimensions behind the channels
  BatchNormOptions options{kChannels};
  torch::MemoryFormat format = torch::MemoryFormat::Contiguous;
  int64_t steps = 3;
};

struct Step {
  torch::Tensor output;
  torch::Tensor input_gradient;
};

template <typename Layer>
Step Train(Layer& layer, const torch::Tensor& input, const torch::Tensor& output_gradient) {
  const torch::Tensor leaf = input.detach().clone().requires_grad_();
  const torch::Tensor output = layer.forward(leaf);
  (output * output_gradient).sum().backward();
  return {output.detach(), leaf.grad()};
}

torch::Tensor SumOverRanks(const torch::Tensor& tensor, ProcessGroup& group) {
  if (!tensor.defined()) return tensor;
  const torch::Tensor sum = tensor.clone();
  EXPECT_EQ(group.AllReduce(sum), absl::OkStatus());
  return sum;
}

// A few training steps, and then eval, beside `Reference` over the joined batches in one process.
template <typename Reference>
void ExpectLikeOneProcess(const Case& test) {
  int64_t all_rows = 0;
  for (const int64_t rows : test.rows) all_rows += rows;
  std::vector<int64_t> shape = {all_rows, kChannels};
  shape.insert(shape.end(), test.inner.begin(), test.inner.end());

  const auto body = [&](ProcessGroup& group) {
    Reference reference(test.options);
    SyncBatchNorm layer(test.options, &group);
    Fill(*reference);
    Fill(*layer);
    int64_t first = 0;
    for (int rank = 0; rank < group.rank(); ++rank) first += test.rows[rank];
    const auto share = [&](const torch::Tensor& whole) { return whole.narrow(0, first, test.rows[group.rank()]); };
    for (int64_t step = 0; step < test.steps; ++step) {
      const torch::Tensor input = (Values(shape, 100 + step) * 2 + 1).contiguous(test.format);
      const torch::Tensor gradient = Values(shape, 200 + step).contiguous(test.format);
      const Step expected = Train(*reference, input, gradient);
      const Step actual = Train(*layer, share(input), share(gradient));
      ExpectNear(actual.output, share(expected.output), 1e-13);
      ExpectNear(actual.input_gradient, share(expected.input_gradient), 1e-13);
      EXPECT_TRUE(actual.output.is_contiguous(test.format));
    }
    if (test.options.affine()) {
      ExpectNear(SumOverRanks(layer->weight.grad(), group), reference->weight.grad(), 1e-12);
      ExpectNear(SumOverRanks(layer->bias.grad(), group), reference->bias.grad(), 1e-12);
    }
    ExpectNear(layer->running_mean, reference->running_mean, 1e-14);
    ExpectNear(layer->running_var, reference->running_var, 1e-14);
    ExpectNear(layer->num_batches_tracked, reference->num_batches_tracked, 0);
    if (test.rows[group.rank()] == 0 || !test.options.track_running_stats()) return;
    layer->eval();
    reference->eval();
    const torch::Tensor input = share(Values(shape, 300));
    ExpectNear(layer(input), reference(input), 1e-13);
  };
  EXPECT_EQ(RunRanksOk(static_cast<int>(test.rows.size()), body), absl::OkStatus());
}

TEST(SyncBatchNorm, TrainsAsOneProcessWithTheJoinedBatchWould) {
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{6}, {3, 3}, {5, 1}, {2, 4, 1}, {1, 1, 1}, {1, 2, 3, 4}}) {
    SCOPED_TRACE(absl::StrCat(rows.size(), " ranks, ", rows[0], " rows on the first"));
    ExpectLikeOneProcess<torch::nn::BatchNorm1d>({rows, {}});
    ExpectLikeOneProcess<torch::nn::BatchNorm1d>({rows, {7}});
    ExpectLikeOneProcess<torch::nn::BatchNorm2d>({rows, {4, 5}});
    ExpectLikeOneProcess<torch::nn::BatchNorm3d>({rows, {2, 3, 4}});
  }
}

TEST(SyncBatchNorm, LetsRanksHaveNoSamples) {
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{0, 4}, {4, 0}, {0, 0, 2}, {3, 0, 1, 0}}) {
    SCOPED_TRACE(absl::StrCat(rows.size(), " ranks, ", rows[0], " rows on the first"));
    ExpectLikeOneProcess<torch::nn::BatchNorm1d>({rows, {}});
    ExpectLikeOneProcess<torch::nn::BatchNorm2d>({rows, {4, 5}});
  }
}

TEST(SyncBatchNorm, KeepsChannelsLast) {
  Case test{{2, 4, 1}, {4, 5}};
  test.format = torch::MemoryFormat::ChannelsLast;
  ExpectLikeOneProcess<torch::nn::BatchNorm2d>(test);
  test.inner = {2, 4, 5};
  test.format = torch::MemoryFormat::ChannelsLast3d;
  ExpectLikeOneProcess<torch::nn::BatchNorm3d>(test);
}

TEST(SyncBatchNorm, TakesBatchNormsOptions) {
  for (const BatchNormOptions& options :
       {BatchNormOptions(kChannels).eps(0.1), BatchNormOptions(kChannels).momentum(0.7),
        BatchNormOptions(kChannels).momentum(c10::nullopt), BatchNormOptions(kChannels).affine(false),
        BatchNormOptions(kChannels).track_running_stats(false)}) {
    std::ostringstream which;
    SyncBatchNorm(options, nullptr)->pretty_print(which);
    SCOPED_TRACE(which.str());
    Case test{{2, 3}, {4, 5}};
    test.options = options;
    ExpectLikeOneProcess<torch::nn::BatchNorm2d>(test);
  }
}

TEST(SyncBatchNorm, TakesInputsThatAreNotDense) {
  const auto body = [](ProcessGroup& group) {
    const torch::Tensor whole = Values({4, 5, kChannels, 6}, 1);
    const torch::Tensor input = whole.permute({0, 2, 1, 3}).slice(3, 0, 6, 2).slice(0, 2 * group.rank()).slice(0, 0, 2);
    SyncBatchNorm layer(kChannels, &group);
    SyncBatchNorm dense(kChannels, &group);
    Fill(*layer);
    Fill(*dense);
    const Step actual = Train(*layer, input, torch::ones({1}, torch::kDouble).expand({2, kChannels, 5, 3}));
    const Step expected = Train(*dense, input.contiguous(), torch::ones({2, kChannels, 5, 3}, torch::kDouble));
    ExpectNear(actual.output, expected.output, 0);
    ExpectNear(actual.input_gradient, expected.input_gradient, 0);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(SyncBatchNorm, KeepsTheSameRunningStatisticsOnEveryRank) {
  std::vector<torch::Tensor> means(3), variances(3);
  const auto body = [&](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    for (int step = 0; step < 3; ++step) layer(Values({group.rank() + 1, kChannels}, step).to(torch::kFloat));
    means[group.rank()] = layer->running_mean;
    variances[group.rank()] = layer->running_var;
  };
  ASSERT_EQ(RunRanksOk(3, body), absl::OkStatus());
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_TRUE(means[rank].equal(means[0]));
    EXPECT_TRUE(variances[rank].equal(variances[0]));
  }
}

TEST(SyncBatchNorm, SynchronizesInTrainingWithoutGradientsToo) {
  const auto body = [](ProcessGroup& group) {
    const torch::NoGradGuard no_grad;
    SyncBatchNorm layer(kChannels, &group);
    torch::nn::BatchNorm1d reference(kChannels);
    Fill(*layer);
    Fill(*reference);
    const torch::Tensor whole = Values({6, kChannels}, 1);
    const torch::Tensor output = layer(whole.slice(0, 3 * group.rank()).slice(0, 0, 3));
    EXPECT_FALSE(output.requires_grad());
    ExpectNear(output, reference(whole).slice(0, 3 * group.rank()).slice(0, 0, 3), 1e-13);
    ExpectNear(layer->running_var, reference->running_var, 1e-14);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(SyncBatchNorm, SendsNothingInEval) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm tracked(kChannels, &group);
    SyncBatchNorm untracked(BatchNormOptions(kChannels).track_running_stats(false), &group);
    tracked->eval();
    untracked->eval();
    if (group.rank() != 0) return;  // Rank 0 would wait for the others in any collective.
    const torch::Tensor input = Values({4, kChannels}, 1).to(torch::kFloat);
    torch::nn::BatchNorm1d reference(kChannels);
    EXPECT_TRUE(untracked(input).equal(reference(input)));
    reference(input);
    tracked->running_mean.copy_(reference->running_mean);
    tracked->running_var.copy_(reference->running_var);
    reference->eval();
    EXPECT_TRUE(tracked(input).equal(reference(input)));
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(SyncBatchNorm, SendsNothingInBackwardIfTheInputNeedsNoGradient) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    const torch::Tensor loss = layer(torch::randn({2, kChannels})).pow(3).sum();
    if (group.rank() != 0) return;  // Rank 0 would wait for the others in any collective.
    loss.backward();
    EXPECT_TRUE(layer->weight.grad().defined());
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(SyncBatchNorm, ComputesHalfAndBfloat16InFloat) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
    const auto body = [&](ProcessGroup& group) {
      SyncBatchNorm layer(kChannels, &group);
      torch::nn::BatchNorm2d reference(kChannels);
      const auto share = [&](const torch::Tensor& whole) { return whole.slice(0, group.rank(), c10::nullopt, 2); };
      const torch::Tensor input = (Values({6, kChannels, 8, 8}, 1) + 3).to(dtype);
      const torch::Tensor gradient = Values({6, kChannels, 8, 8}, 2).to(dtype);
      const Step expected = Train(*reference, input.to(torch::kFloat), gradient.to(torch::kFloat));
      const Step actual = Train(*layer, share(input), share(gradient));
      EXPECT_EQ(actual.output.scalar_type(), dtype);
      EXPECT_EQ(actual.input_gradient.scalar_type(), dtype);
      EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat);
      // The tolerance is half a unit in the last place of values up to 4.
      ExpectNear(actual.output, share(expected.output), dtype == torch::kHalf ? 2e-3 : 1.6e-2);
      ExpectNear(actual.input_gradient, share(expected.input_gradient), dtype == torch::kHalf ? 2e-3 : 1.6e-2);
      ExpectNear(layer->running_mean, reference->running_mean, 1e-6);
      ExpectNear(layer->running_var, reference->running_var, 1e-6);
      ExpectNear(SumOverRanks(layer->weight.grad(), group), reference->weight.grad(), 1e-3);
    };
    EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
  }
}

TEST(SyncBatchNorm, HasParametersAndBuffersThatBatchNormLoads) {
  SyncBatchNorm layer(BatchNormOptions(kChannels), nullptr);
  torch::nn::BatchNorm2d reference(kChannels);
  EXPECT_EQ(layer->named_parameters().keys(), reference->named_parameters().keys());
  EXPECT_EQ(layer->named_buffers().keys(), reference->named_buffers().keys());
  Fill(*layer);
  reference->to(torch::kDouble);
  std::stringstream stream;
  torch::save(layer, stream);
  torch::load(reference, stream);
  for (const auto& item : layer->named_parameters()) {
    EXPECT_TRUE(item.value().equal(reference->named_parameters()[item.key()])) << item.key();
    EXPECT_TRUE(item.value().requires_grad());
  }
  for (const auto& item : layer->named_buffers()) {
    EXPECT_TRUE(item.value().equal(reference->named_buffers()[item.key()])) << item.key();
  }
}

TEST(SyncBatchNorm, ClonesKeepTheGroupAndHaveTheirOwnTensors) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    Fill(*layer);
    SyncBatchNorm copy(std::dynamic_pointer_cast<SyncBatchNormImpl>(layer->clone()));
    ASSERT_FALSE(copy.is_empty());
    EXPECT_EQ(copy->process_group, &group);
    EXPECT_FALSE(copy->weight.is_same(layer->weight));
    EXPECT_TRUE(copy->weight.equal(layer->weight));
    const torch::Tensor input = Values({group.rank() + 1, kChannels}, 1);
    EXPECT_TRUE(copy(input).equal(layer(input)));
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(SyncBatchNorm, RefusesAWrongNumberOfChannelsBeforeItSends) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    const auto refused = [&](const torch::Tensor& input) { return TorchStatus("", [&] { layer(input); }); };
    EXPECT_EQ(refused(torch::ones({4, 5})),
              absl::InvalidArgumentError(absl::StrCat("rank ", group.rank(),
                                                      " of 2: SyncBatchNorm: expected an input of "
                                                      "3 channels (dimension 1), found the shape [4, 5]")));
    EXPECT_EQ(refused(torch::ones({3})),
              absl::InvalidArgumentError(absl::StrCat("rank ", group.rank(),
                                                      " of 2: SyncBatchNorm: expected an input of "
                                                      "at least 2 dimensions, found the shape [3]")));
    layer(torch::randn({4, 3}));  // The group goes on.
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(SyncBatchNorm, RefusesASingleValuePerChannelOverAllRanks) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    const absl::Status status = TorchStatus("", [&] { layer(torch::ones({group.rank() == 1 ? 1 : 0, kChannels})); });
    EXPECT_TRUE(layer->running_mean.equal(torch::zeros({kChannels})));
    EXPECT_EQ(layer->num_batches_tracked.item<int64_t>(), 0);
    return status;
  };
  const std::vector<absl::Status> statuses = RunRanks(3, body);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(statuses[rank].message()),
                HasSubstr(absl::StrCat("rank ", rank,
                                       " of 3: SyncBatchNorm in training: expected more than 1 value per "
                                       "channel over all ranks, found 1, on rank 1")));
  }
  const auto alone = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    return TorchStatus("", [&] { layer(torch::ones({1, kChannels})); });
  };
  EXPECT_THAT(std::string(RunRanks(1, alone)[0].message()),
              HasSubstr("rank 0 of 1: SyncBatchNorm: in training: expected more than 1 value per channel"));
}

TEST(SyncBatchNorm, RefusesToDifferentiateItsBackward) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    const torch::Tensor input = torch::randn({2, kChannels}).requires_grad_();
    const torch::Tensor loss = layer(input).pow(3).sum();
    return TorchStatus("", [&] { torch::autograd::grad({loss}, {input}, {}, c10::nullopt, /*create_graph=*/true); });
  };
  for (const absl::Status& status : RunRanks(2, body)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  }
}

TEST(SyncBatchNorm, FailsInBackwardWithTheErrorOfTheGroup) {
  const auto body = [](ProcessGroup& group) {
    SyncBatchNorm layer(kChannels, &group);
    const torch::Tensor loss = layer(torch::randn({2, kChannels}).requires_grad_()).pow(3).sum();
    if (group.rank() == 1) return absl::OkStatus();  // and never calls backward
    return TorchStatus("", [&] { loss.backward(); });
  };
  const absl::Status status = RunRanks(2, body)[0];
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("SyncBatchNorm backward"));
}

}  // namespace
}  // namespace lockstep::ddp
