// DataParallel's arguments and results, its parts, and its functional form.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/dp/data_parallel.h"
#include "lockstep/dp/testing/nets.h"

namespace lockstep::dp {
namespace {

using testing::ExpectClose;
using testing::Gradients;
using ::testing::HasSubstr;
using testing::Message;
using testing::Mlp;
using testing::OnCpus;
using testing::Seeded;
using testing::Wrapped;

struct Sample {
  at::Tensor image;
  std::map<std::string, at::Tensor> extras;
};

template <typename F>
Sample MapTensors(const Sample& sample, F&& f) {
  return {f(sample.image), lockstep::MapTensors(sample.extras, f)};
}

struct Prediction {
  std::vector<at::Tensor> logits;
  std::tuple<at::Tensor, int> loss_and_layers;
};

template <typename F>
Prediction MapTensors(const Prediction& prediction, F&& f) {
  return {lockstep::MapTensors(prediction.logits, f), lockstep::MapTensors(prediction.loss_and_layers, f)};
}

struct NestedImpl : torch::nn::Cloneable<NestedImpl> {
  NestedImpl() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(4, 2)); }
  Prediction forward(const Sample& sample, double scale, bool negate) {
    const at::Tensor x = linear(sample.image + sample.extras.at("shift")) * (negate ? -scale : scale);
    return {{x, x + 1}, {x.sum(1), 7}};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Nested);

TEST(DataParallel, TakesAndReturnsNestedValuesWithExtraArguments) {
  auto alone = Seeded<Nested>();
  auto model = Wrapped(Seeded<Nested>(), OnCpus(3));
  const Sample sample{at::rand({5, 4}), {{"shift", at::rand({5, 4})}}};
  const Prediction actual = model(sample, 2.5, true), expected = alone(sample, 2.5, true);
  ASSERT_EQ(actual.logits.size(), 2);
  EXPECT_TRUE(actual.logits[1].allclose(expected.logits[1]));
  EXPECT_TRUE(std::get<0>(actual.loss_and_layers).allclose(std::get<0>(expected.loss_and_layers)));
  EXPECT_EQ(std::get<1>(actual.loss_and_layers), 7);
  (actual.logits[0] * actual.logits[1]).sum().backward();
  (expected.logits[0] * expected.logits[1]).sum().backward();
  ExpectClose(Gradients(model.module()), Gradients(alone), 1e-5);
}

struct TwoInputsImpl : torch::nn::Cloneable<TwoInputsImpl> {
  TwoInputsImpl() { reset(); }
  void reset() override { weight = register_parameter("weight", at::rand({3})); }
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& a, const at::Tensor& b) {
    return {a * weight, (b * weight).sum()};
  }
  at::Tensor weight;
};
TORCH_MODULE(TwoInputs);

TEST(DataParallel, TakesSeveralInputsAndMakesAVectorOfScalars) {
  auto model = Wrapped(TwoInputs(), OnCpus(2));
  const auto [product, sums] = model(at::ones({4, 3}), at::ones({2, 3}));
  EXPECT_EQ(product.sizes(), (c10::IntArrayRef{4, 3}));
  EXPECT_EQ(sums.sizes(), (c10::IntArrayRef{2}));
  (product.sum() + sums.sum()).backward();
  EXPECT_TRUE(model.module()->weight.grad().equal(at::full({3}, 6.f)));
}

TEST(DataParallel, CutsAlongDim) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4));
  Options options = OnCpus(2);
  options.dim = 1;
  auto model = Wrapped(net, options);
  const at::Tensor x = at::rand({2, 6, 4});
  EXPECT_TRUE(model.module()->forward(x).allclose(Wrapped(net, OnCpus(2))(x)));
  EXPECT_TRUE(model.module()->forward(x).allclose(model(x)));
}

struct WritingImpl : torch::nn::Cloneable<WritingImpl> {
  WritingImpl() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(4, 2)); }
  at::Tensor forward(at::Tensor x) { return linear(x.sub_(0.5)); }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Writing);

TEST(DataParallel, LetsEachReplicaWriteToItsChunk) {
  auto alone = Seeded<Writing>();
  auto model = Wrapped(Seeded<Writing>(), OnCpus(4));
  const at::Tensor x = at::rand({8, 4});
  alone(x.clone()).pow(2).sum().backward();
  model(x.clone()).pow(2).sum().backward();
  ExpectClose(Gradients(model.module()), Gradients(alone), 1e-5);
}

TEST(DataParallel, RefusesABackwardWhoseTensorsAReplicaWroteTo) {
  auto model = Wrapped(Writing(), OnCpus(2));
  const at::Tensor x = at::rand({4, 4}), w = at::rand({4}).set_requires_grad(true);
  const at::Tensor product = x * w, exponential = w.expand({4, 4}).exp();
  model(x);
  model(exponential);
  for (const at::Tensor& tensor : {product, exponential}) {
    EXPECT_THAT(Message([&] { tensor.sum().backward(); }), HasSubstr("has been modified by an inplace operation"));
  }
}

struct ScalingImpl : torch::nn::Cloneable<ScalingImpl> {
  ScalingImpl() { reset(); }
  void reset() override { scale = register_buffer("scale", at::ones({1})); }
  at::Tensor forward(const at::Tensor& x) {
    if (x.max().item<float>() > 5) scale.add_(1);
    return x * scale;
  }
  at::Tensor scale;
};
TORCH_MODULE(Scaling);

TEST(DataParallel, SumsTheGradientsOfBuffersThatHaveAny) {
  auto model = Wrapped(Scaling(), OnCpus(2));
  model.module()->scale.set_requires_grad(true);
  model(at::ones({4})).sum().backward();
  EXPECT_EQ(model.module()->scale.grad().item<float>(), 4);
}

TEST(DataParallel, RefusesABackwardWhoseBufferAReplicaWroteToAndLost) {
  auto model = Wrapped(Scaling(), OnCpus(2));
  const at::Tensor output = model(at::tensor({1.f, 10.f}).set_requires_grad(true));
  model(at::ones({2}));
  EXPECT_THAT(Message([&] { output.sum().backward(); }), HasSubstr("has been modified by an inplace operation"));
}

// ---- Batches of unusual sizes.

struct CountingImpl : torch::nn::Cloneable<CountingImpl> {
  void reset() override { rows = register_buffer("rows", at::zeros({1}, at::kLong)); }
  CountingImpl() { reset(); }
  at::Tensor forward(const at::Tensor& x) {
    rows.add_(x.size(0));
    return x + 1;
  }
  at::Tensor rows;
};
TORCH_MODULE(Counting);

TEST(DataParallel, UsesFewerDevicesForASmallBatch) {
  auto model = Wrapped(Counting(), OnCpus(4));
  EXPECT_EQ(model(at::zeros({5, 1})).size(0), 5);
  EXPECT_EQ(model.module()->rows.item<int64_t>(), 2);
  EXPECT_EQ(model(at::zeros({1, 1})).size(0), 1);
  EXPECT_EQ(model.module()->rows.item<int64_t>(), 3);
}

TEST(DataParallel, TakesAnEmptyBatch) {
  auto model = Wrapped(Seeded<Mlp>(), OnCpus(3));
  const at::Tensor output = model(at::zeros({0, 6}, at::kDouble));
  EXPECT_EQ(output.sizes(), (c10::IntArrayRef{0, 3}));
  output.sum().backward();
  EXPECT_TRUE(model.module()->last->weight.grad().equal(at::zeros({3, 8}, at::kDouble)));
}

struct NoInputImpl : torch::nn::Cloneable<NoInputImpl> {
  void reset() override { weight = register_parameter("weight", at::ones({3})); }
  NoInputImpl() { reset(); }
  at::Tensor forward() { return weight * 2; }
  at::Tensor weight;
};
TORCH_MODULE(NoInput);

TEST(DataParallel, CallsAModuleWithoutArgumentsOnce) {
  auto model = Wrapped(NoInput(), OnCpus(3));
  EXPECT_EQ(model().size(0), 3);
}

// ---- Its parts, replaced.

struct Reversed : Parts<Counting> {
  template <typename T>
  std::vector<T> Scatter(const T& inputs, const std::vector<c10::Device>& devices, int64_t dim) {
    std::vector<T> chunks = Parts<Counting>::Scatter(inputs, devices, dim);
    std::reverse(chunks.begin(), chunks.end());
    return chunks;
  }
};

struct Stacked : Parts<Counting> {
  template <typename T>
  T Gather(const std::vector<T>& outputs, c10::Device, int64_t) {
    return at::stack(outputs);
  }
};

struct Serial : Parts<Counting> {
  template <typename... Args>
  std::vector<at::Tensor> ParallelApply(std::vector<Counting>& replicas, std::vector<std::tuple<Args...>>& inputs,
                                        const std::vector<c10::Device>&) {
    std::vector<at::Tensor> outputs;
    for (size_t i = 0; i < replicas.size(); ++i) outputs.push_back(replicas[i](std::get<0>(inputs[i])) * 10);
    return outputs;
  }
};

struct Same : Parts<Counting> {
  std::vector<Counting> Replicate(const Counting& net, const std::vector<c10::Device>&, size_t count,
                                  const ReplicateOptions&) {
    return std::vector<Counting>(count, net);
  }
};

template <typename ItsParts>
at::Tensor OutputWith(Counting net = Counting()) {
  auto model = Wrap(net, OnCpus(2), ItsParts());
  return (*model)(at::tensor({0.f, 1.f, 2.f, 3.f}));
}

TEST(DataParallel, CanHaveEachPartReplaced) {
  EXPECT_TRUE(OutputWith<Parts<Counting>>().equal(at::tensor({1.f, 2.f, 3.f, 4.f})));
  EXPECT_TRUE(OutputWith<Reversed>().equal(at::tensor({3.f, 4.f, 1.f, 2.f})));
  EXPECT_EQ(OutputWith<Stacked>().sizes(), (c10::IntArrayRef{2, 2}));
  EXPECT_TRUE(OutputWith<Serial>().equal(at::tensor({10.f, 20.f, 30.f, 40.f})));
  Counting net;
  OutputWith<Same>(net);
  EXPECT_EQ(net->rows.item<int64_t>(), 4);
}

struct Chunks : Parts<Counting> {
  explicit Chunks(size_t count = 0) : count(count) {}
  template <typename T>
  std::vector<T> Scatter(const T& inputs, const std::vector<c10::Device>&, int64_t) {
    return std::vector<T>(count, inputs);
  }
  size_t count;
};

TEST(DataParallel, NeedsOneChunkOrMoreAndNoMoreThanDevices) {
  for (const size_t count : {0, 3}) {
    auto model = Wrap(Counting(), OnCpus(2), Chunks(count));
    EXPECT_EQ(Message([&] { (*model)(at::ones({4})); }),
              "DataParallel: expected 1 to 2 chunks of Scatter, found " + std::to_string(count));
  }
}

// ---- The functional form.

TEST(DataParallelApply, RunsOneForward) {
  auto net = Seeded<Mlp>();
  const at::Tensor x = at::rand({5, 6}, at::kDouble);
  const at::Tensor output = DataParallelApply(net, x, OnCpus(2));
  EXPECT_TRUE(output.allclose(net(x), 1e-12, 1e-12));
  output.sum().backward();
  const std::vector<at::Tensor> gradients = Gradients(net);
  net->zero_grad();
  net(x).sum().backward();
  ExpectClose(gradients, Gradients(net), 1e-12);
}

TEST(DataParallelApply, TakesATupleOfArguments) {
  const Sample sample{at::rand({5, 4}), {{"shift", at::rand({5, 4})}}};
  const auto net = Seeded<Nested>();
  const Prediction prediction = DataParallelApply(net, std::tuple(sample, 2.0, false), OnCpus(2));
  EXPECT_EQ(prediction.logits[0].size(0), 5);
}

TEST(DataParallelApply, ThrowsWhatWrapReturns) {
  Options options;
  options.device_ids = {DeviceId(-5)};
  EXPECT_THROW(DataParallelApply(Seeded<Mlp>(), at::ones({1}), options), StatusError);
}

}  // namespace
}  // namespace lockstep::dp
