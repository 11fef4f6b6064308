#include "lockstep/dp/data_parallel.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/base/torch_status.h"
#include "lockstep/models/resnet.h"

namespace lockstep::dp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options OnCpus(size_t count) {
  Options options;
  options.device_ids.assign(count, DeviceId(-1));
  return options;
}

template <typename Net>
DataParallel<Net> Wrapped(Net net, const Options& options) {
  auto model = Wrap(std::move(net), options);
  ThrowIfError(model.status());
  return *std::move(model);
}

template <typename F>
std::string Message(F&& f) {
  return std::string(TorchStatus("", f).message());
}

struct MlpImpl : torch::nn::Cloneable<MlpImpl> {
  MlpImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 8));
    last = register_module("last", torch::nn::Linear(8, 3));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return last(first(x).tanh()); }
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(Mlp);

template <typename Net>
Net Seeded(uint64_t seed = 1) {
  torch::manual_seed(seed);
  return Net();
}

template <typename Net>
std::vector<at::Tensor> Gradients(const Net& net) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : net->parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

// Within `tolerance` of the largest.
void ExpectClose(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double largest = expected[i].abs().max().item<double>();
    EXPECT_LE((actual[i] - expected[i]).abs().max().item<double>(), tolerance * largest) << "gradient " << i;
  }
}

class DataParallelTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  static Options FromParameters() {
    Options options = OnCpus(std::get<0>(GetParam()));
    options.replicate.share_memory = std::get<1>(GetParam());
    options.replicate.chunk_bytes = 200;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Replicas, DataParallelTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()), [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "Shared" : "Copied");
                         });

TEST_P(DataParallelTest, TrainsAsOneDevice) {
  auto alone = Seeded<Mlp>();
  auto model = Wrapped(Seeded<Mlp>(), FromParameters());
  torch::optim::SGD alone_optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 5; ++step) {
    const at::Tensor batch = at::rand({7, 6}, at::kDouble);
    alone_optimizer.zero_grad();
    optimizer.zero_grad();
    const at::Tensor expected = alone(batch), actual = model(batch);
    EXPECT_TRUE(actual.allclose(expected, 1e-12, 1e-12));
    expected.pow(2).mean().backward();
    actual.pow(2).mean().backward();
    ExpectClose(Gradients(model.module()), Gradients(alone), 1e-13);
    alone_optimizer.step();
    optimizer.step();
  }
}

TEST_P(DataParallelTest, AccumulatesGradientsOverForwards) {
  auto alone = Seeded<Mlp>();
  auto model = Wrapped(Seeded<Mlp>(), FromParameters());
  const at::Tensor a = at::rand({4, 6}, at::kDouble), b = at::rand({5, 6}, at::kDouble);
  (model(a).sum() * model(b).sum()).backward();
  model(a).sum().backward();
  (alone(a).sum() * alone(b).sum()).backward();
  alone(a).sum().backward();
  ExpectClose(Gradients(model.module()), Gradients(alone), 1e-12);
}

TEST_P(DataParallelTest, PassesGradientsOnToItsInputs) {
  auto alone = Seeded<Mlp>();
  auto model = Wrapped(Seeded<Mlp>(), FromParameters());
  at::Tensor x = at::rand({5, 6}, at::kDouble).set_requires_grad(true);
  at::Tensor y = x.detach().clone().set_requires_grad(true);
  model(x).pow(2).sum().backward();
  alone(y).pow(2).sum().backward();
  EXPECT_TRUE(x.grad().allclose(y.grad(), 1e-12, 1e-12));
}

// What a module of one device computes chunk by chunk, each with the buffers that it has now, of which only those of
// the first chunk stay: DataParallel by its definition.
at::Tensor ChunkByChunk(models::ResNet& net, const at::Tensor& images, int64_t chunks) {
  std::vector<at::Tensor> buffers, outputs, kept;
  for (const at::Tensor& buffer : net->buffers()) buffers.push_back(buffer.clone());
  for (const at::Tensor& chunk : images.chunk(chunks)) {
    for (size_t i = 0; i < buffers.size(); ++i) net->buffers()[i].data().copy_(buffers[i]);
    outputs.push_back(net(chunk));
    if (!kept.empty()) continue;
    for (const at::Tensor& buffer : net->buffers()) kept.push_back(buffer.clone());
  }
  for (size_t i = 0; i < kept.size(); ++i) net->buffers()[i].data().copy_(kept[i]);
  return at::cat(outputs);
}

models::ResNet SmallResNet() {
  torch::manual_seed(5);
  return models::ResNet(models::ResNetOptions{{1, 1, 1, 1}, false, 10, models::BatchNorm});
}

TEST(DataParallel, TrainsAResNetAsOneDeviceDoesChunkByChunk) {
  for (const int replicas : {2, 4}) {
    models::ResNet alone = SmallResNet();
    auto model = Wrapped(SmallResNet(), OnCpus(replicas));
    torch::optim::SGD alone_optimizer(alone->parameters(), 0.05), optimizer(model.parameters(), 0.05);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor images = at::rand({8, 3, 32, 32});
      alone_optimizer.zero_grad();
      optimizer.zero_grad();
      ChunkByChunk(alone, images, replicas).pow(2).mean().backward();
      model(images).pow(2).mean().backward();
      // Two gradients have one sum; four are added in another order. Rounding grows with the second step.
      ExpectClose(Gradients(model.module()), Gradients(alone), replicas == 2 ? 0 : 1e-6);
      const auto buffers = model.module()->named_buffers();
      for (const auto& buffer : alone->named_buffers()) {
        EXPECT_TRUE(buffers[buffer.key()].allclose(buffer.value(), 1e-5, 1e-6)) << buffer.key();
      }
      if (replicas > 2) break;
      alone_optimizer.step();
      optimizer.step();
    }
  }
}

TEST(DataParallel, GivesTheSameBitsEveryTime) {
  std::vector<std::vector<at::Tensor>> runs;
  for (int run = 0; run < 3; ++run) {
    auto model = Wrapped(SmallResNet(), OnCpus(4));
    model(at::ones({8, 3, 32, 32})).pow(2).mean().backward();
    runs.push_back(Gradients(model.module()));
  }
  ExpectClose(runs[1], runs[0], 0);
  ExpectClose(runs[2], runs[0], 0);
}

// ---- Inputs and outputs.

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

// ---- What stays of a forward.

TEST(DataParallel, KeepsTheBuffersOfReplicaZero) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(1).momentum(1)));
  auto model = Wrapped(net, OnCpus(2));
  model(at::tensor({1.f, 3.f, 100.f, 300.f}).view({4, 1}));
  const auto* const norm = net->ptr(0)->as<torch::nn::BatchNorm1d>();
  EXPECT_EQ(norm->running_mean.item<float>(), 2);
  EXPECT_EQ(norm->running_var.item<float>(), 2);
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(DataParallel, GivesReplicasTheBuffersOfReplicaZero) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(1).momentum(1)));
  auto model = Wrapped(net, OnCpus(2));
  const at::Tensor x = at::tensor({1.f, 3.f, 100.f, 300.f}).view({4, 1});
  model(x);
  model.eval();
  EXPECT_TRUE(model(x).equal(net->forward(x)));
}

// ---- Modes.

TEST(DataParallel, RecordsNothingWithoutGradMode) {
  auto model = Wrapped(Seeded<Mlp>(), OnCpus(2));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(model(at::rand({4, 6}, at::kDouble)).requires_grad());
}

TEST(DataParallel, OfTiedWeightsSumsTheirGradients) {
  torch::nn::Linear layer(4, 4);
  torch::nn::Sequential net(layer, layer);
  auto model = Wrapped(net, OnCpus(2));
  EXPECT_EQ(model.parameters().size(), 2);
  const at::Tensor x = at::rand({4, 4});
  model(x).sum().backward();
  const at::Tensor gradient = layer->weight.grad().clone();
  net->zero_grad();
  net->forward(x).sum().backward();
  EXPECT_TRUE(gradient.allclose(layer->weight.grad()));
}

TEST(DataParallel, SumsSparseGradients) {
  torch::nn::Sequential net(torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(true)));
  auto model = Wrapped(net, OnCpus(2));
  model(at::tensor({1L, 2L, 2L, 3L})).sum().backward();
  const at::Tensor gradient = net->parameters()[0].grad();
  EXPECT_TRUE(gradient.is_sparse());
  EXPECT_TRUE(gradient.to_dense().select(1, 0).equal(at::tensor({0.f, 1.f, 2.f, 1.f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f})));
}

// ---- Devices.

struct ThreadImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    thread = std::this_thread::get_id();
    return x;
  }
  std::thread::id thread;
};
TORCH_MODULE(Thread);

TEST(DataParallel, WithOneDeviceCallsTheModuleOnTheCallingThread) {
  auto model = Wrapped(Thread(), OnCpus(1));
  model(at::ones({2}));
  EXPECT_EQ(model.module()->thread, std::this_thread::get_id());
  EXPECT_EQ(model(at::scalar_tensor(1)).dim(), 0);
}

TEST(DataParallel, WithoutAGpuCallsTheModuleByDefault) {
  if (Wrapped(Thread(), {}).device_ids().empty()) {
    auto model = Wrapped(Thread(), {});
    EXPECT_EQ(model(at::ones({2})).size(0), 2);
    EXPECT_EQ(model.module()->thread, std::this_thread::get_id());
  }
}

struct HalfOnMetaImpl : torch::nn::Cloneable<HalfOnMetaImpl> {
  void reset() override {
    register_parameter("here", at::ones({1}));
    register_buffer("elsewhere", at::ones({1}, at::kMeta));
  }
  HalfOnMetaImpl() { reset(); }
  at::Tensor forward(const at::Tensor& x) { return x; }
};
TORCH_MODULE(HalfOnMeta);

TEST(DataParallel, NamesATensorThatIsNotOnTheFirstDevice) {
  auto model = Wrapped(HalfOnMeta(), OnCpus(2));
  EXPECT_EQ(
      Message([&] { model(at::rand({2})); }),
      "module must have its parameters and buffers on device cpu (device_ids[0]) but found one of them, elsewhere, "
      "on device: meta");
}

TEST(DataParallel, RefusesDevicesThatDoNotExist) {
  Options options;
  options.device_ids = {DeviceId(-1), DeviceId(-5)};
  EXPECT_EQ(Wrap(Seeded<Mlp>(), options).status(),
            absl::InvalidArgumentError("device_ids[1]: expected the number of a GPU, or -1 for the CPU, found -5"));
  options.device_ids = {DeviceId(99)};
  EXPECT_THAT(Wrap(Seeded<Mlp>(), options).status().message(),
              HasSubstr("device_ids[0]: expected a visible device, found cuda:99 where there are"));
  options.device_ids = {c10::kCPU, c10::kCPU};
  options.output_device = DeviceId(99);
  EXPECT_THAT(Wrap(Seeded<Mlp>(), options).status().message(), HasSubstr("output_device: expected a visible device"));
}

TEST(DataParallel, RefusesDevicesOfSeveralTypes) {
  Options options;
  options.device_ids = {c10::kCPU, c10::Device("meta")};
  EXPECT_EQ(Wrap(Seeded<Mlp>(), options).status().message(),
            "device_ids[1]: expected a device of the type of cpu (device_ids[0]), found meta");
}

// ---- Errors.

TEST(DataParallel, NamesTheReplicaThatThrowsAndGoesOn) {
  auto model = Wrapped(Seeded<Mlp>(), OnCpus(2));
  const std::string message = Message([&] { model(at::rand({4, 5}, at::kDouble)); });
  EXPECT_THAT(message, HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
  EXPECT_THAT(message, HasSubstr("in replica 0 on device cpu"));
  model(at::rand({4, 6}, at::kDouble)).sum().backward();
  EXPECT_TRUE(model.module()->last->weight.grad().defined());
}

TEST(DataParallel, OfAModuleWithoutCloneSaysWhatToDo) {
  auto model = Wrapped(Thread(), OnCpus(2));
  EXPECT_THAT(Message([&] { model(at::ones({2})); }), HasSubstr("derive the module and its submodules from torch"));
  auto parts = Wrap(Thread(), OnCpus(2), Parts<Thread>([] { return Thread(); }));
  EXPECT_EQ((*parts)(at::ones({2})).size(0), 2);
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
