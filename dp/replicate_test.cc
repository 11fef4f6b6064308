#include "lockstep/dp/replicate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/torch_status.h"

namespace lockstep::dp {
namespace {

using ::testing::HasSubstr;

std::vector<c10::Device> Cpus(size_t count) { return std::vector<c10::Device>(count, c10::Device(c10::kCPU)); }

// With a BatchNorm and a layer that is used twice.
struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    last = register_module("last", torch::nn::Linear(4, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return last(norm(first(first(x).relu()))); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

// Has no clone().
struct PlainImpl : torch::nn::Module {
  explicit PlainImpl(int64_t out = 2) : linear(register_module("linear", torch::nn::Linear(4, out))) {}
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Plain);

ReplicateOptions WithMemoryOfTheirOwn() {
  ReplicateOptions options;
  options.share_memory = false;
  return options;
}

// Shared and copied parameters behave alike.
class ReplicasTest : public ::testing::TestWithParam<bool> {
 protected:
  static ReplicateOptions Options() {
    ReplicateOptions options;
    options.share_memory = GetParam();
    options.chunk_bytes = 64;  // several chunks
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, ReplicasTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Copied"; });

void ExpectSameValues(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto parameters = a.named_parameters(), buffers = a.named_buffers();
  for (const auto& p : parameters) EXPECT_TRUE(p.value().equal(b.named_parameters()[p.key()])) << p.key();
  for (const auto& p : buffers) EXPECT_TRUE(p.value().equal(b.named_buffers()[p.key()])) << p.key();
}

TEST_P(ReplicasTest, HaveTheModulesValuesAtEachUpdate) {
  Net net;
  Replicas<Net> replicas(net, Cpus(3), Options());
  for (int step = 0; step < 3; ++step) {
    for (const Net& replica : replicas.Update(3)) ExpectSameValues(*net, *replica);
    const at::NoGradGuard no_grad;
    // As LibTorch's optimizers do, which autograd does not see.
    for (const at::Tensor& parameter : net->parameters()) parameter.data().add_(1);
    net->norm->running_mean.add_(1);
  }
}

TEST_P(ReplicasTest, AreMadeOnce) {
  Net net;
  Replicas<Net> replicas(net, Cpus(3), Options());
  const std::vector<Net> first = replicas.Update(3), again = replicas.Update(3);
  EXPECT_EQ(first[0].ptr(), net.ptr());
  EXPECT_EQ(first[2].ptr(), again[2].ptr());
  EXPECT_EQ(first[2]->last->weight.data_ptr(), again[2]->last->weight.data_ptr());
  EXPECT_EQ(replicas.Update(2).size(), 2);
}

TEST_P(ReplicasTest, SumTheirGradientsIntoTheModules) {
  Net net;
  Replicas<Net> replicas(net, Cpus(3), Options());
  net->eval();  // else each would normalise by its own batch
  const at::Tensor x = at::rand({6, 4});
  std::vector<Net> nets = replicas.Update(3);
  for (int64_t i = 0; i < 3; ++i) nets[i](x.narrow(0, 2 * i, 2)).pow(2).sum().backward();
  std::vector<at::Tensor> summed;
  for (const at::Tensor& parameter : net->parameters()) summed.push_back(parameter.grad().clone());
  net->zero_grad();
  net(x).pow(2).sum().backward();
  for (size_t i = 0; i < summed.size(); ++i) EXPECT_TRUE(summed[i].allclose(net->parameters()[i].grad())) << i;
}

TEST_P(ReplicasTest, ServeSeveralForwardsBeforeABackward) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  const at::Tensor x = at::rand({3, 4});
  const at::Tensor first = replicas.Update(2)[1](x).sum();
  const at::Tensor second = replicas.Update(2)[1](x).sum();
  first.backward();
  const at::Tensor once = net->last->weight.grad().clone();
  second.backward();
  EXPECT_TRUE(net->last->weight.grad().allclose(2 * once));
}

// The module is evaluated between a forward and its backward.
TEST_P(ReplicasTest, KeepAGraphThroughAForwardWithoutGradients) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  const at::Tensor x = at::rand({3, 4});
  const at::Tensor loss = replicas.Update(2)[1](x).sum();
  {
    const at::NoGradGuard no_grad;
    replicas.Update(2)[1](x);
  }
  loss.backward();
  EXPECT_TRUE(net->first->weight.grad().defined());
}

// Without replicas, too, LibTorch refuses a backward after a parameter that it needs was changed in place.
TEST_P(ReplicasTest, RefuseABackwardWhoseParametersWereChanged) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  const at::Tensor x = at::rand({3, 4});
  const at::Tensor loss = replicas.Update(2)[1](x).sum();
  {
    const at::NoGradGuard no_grad;
    net->last->weight.add_(1);
  }
  replicas.Update(2);
  EXPECT_THAT(TorchStatus("", [&] { loss.backward(); }).message(), HasSubstr("modified by an inplace operation"));
}

// So do buffers that a graph needs. (That a forward writes to those of a replica is nothing to a graph: see
// ServeSeveralForwardsBeforeABackward.)
TEST_P(ReplicasTest, RefuseABackwardWhoseBuffersWereChanged) {
  Net net;
  net->eval();
  Replicas<Net> replicas(net, Cpus(2), Options());
  const at::Tensor loss = replicas.Update(2)[1](at::rand({3, 4})).sum();
  net->norm->running_mean.add_(1);
  replicas.Update(2);
  EXPECT_THAT(TorchStatus("", [&] { loss.backward(); }).message(), HasSubstr("modified by an inplace operation"));
}

TEST_P(ReplicasTest, FollowTheModulesModes) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  EXPECT_TRUE(replicas.Update(2)[1]->norm->is_training());
  net->norm->eval();
  EXPECT_FALSE(replicas.Update(2)[1]->norm->is_training());
  EXPECT_TRUE(replicas.Update(2)[1]->last->is_training());
  net->eval();
  EXPECT_FALSE(replicas.Update(2)[1]->is_training());
}

TEST_P(ReplicasTest, FollowWhatIsFrozen) {
  Net net;
  net->first->weight.set_requires_grad(false);
  Replicas<Net> replicas(net, Cpus(2), Options());
  const at::Tensor x = at::rand({3, 4});
  Net replica = replicas.Update(2)[1];
  EXPECT_FALSE(replica->first->weight.requires_grad());
  replica(x).sum().backward();
  EXPECT_FALSE(net->first->weight.grad().defined());
  EXPECT_TRUE(net->first->bias.grad().defined());

  net->first->weight.set_requires_grad(true);
  net->last->weight.set_requires_grad(false);
  Net thawed = replicas.Update(2)[1];
  EXPECT_EQ(thawed.ptr(), replica.ptr());
  EXPECT_FALSE(thawed->last->weight.requires_grad());
  thawed(x).sum().backward();
  EXPECT_TRUE(net->first->weight.grad().defined());
}

TEST_P(ReplicasTest, FollowANewDtypeAndNewLayers) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  replicas.Update(2);
  net->to(at::kDouble);
  EXPECT_EQ(replicas.Update(2)[1]->last->weight.scalar_type(), at::kDouble);
  net->last = net->replace_module("last", torch::nn::Linear(4, 2));
  net->last->to(at::kDouble);
  Net replica = replicas.Update(2)[1];
  ExpectSameValues(*net, *replica);
  replica(at::rand({3, 4}, at::kDouble)).sum().backward();
  EXPECT_TRUE(net->last->weight.grad().defined());
}

TEST_P(ReplicasTest, KeepStridesAndDtypes) {
  Net net;
  net->last->weight.set_data(at::rand({4, 2}).t());
  Replicas<Net> replicas(net, Cpus(2), Options());
  const Net replica = replicas.Update(2)[1];
  EXPECT_EQ(replica->last->weight.strides(), net->last->weight.strides());
  EXPECT_EQ(replica->norm->num_batches_tracked.scalar_type(), at::kLong);
  ExpectSameValues(*net, *replica);
}

TEST_P(ReplicasTest, DrawNoRandomNumbers) {
  Net net;
  torch::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  torch::manual_seed(3);
  Replicas<Net>(net, Cpus(3), Options()).Update(3);
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

TEST_P(ReplicasTest, CanBeMadeInInferenceModeForTraining) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  {
    const c10::InferenceMode inference;
    replicas.Update(2);
  }
  replicas.Update(2)[1](at::rand({3, 4})).sum().backward();
  EXPECT_TRUE(net->last->weight.grad().defined());
}

TEST_P(ReplicasTest, KeepAGraphThroughFreezing) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  at::Tensor x = at::ones({4}).set_requires_grad(true);
  const at::Tensor output = x * replicas.Update(2)[1]->first->bias;
  net->first->bias.set_requires_grad(false);
  EXPECT_FALSE(replicas.Update(2)[1]->first->bias.requires_grad());
  output.sum().backward();
  EXPECT_TRUE(x.grad().equal(net->first->bias));
  EXPECT_FALSE(net->first->bias.grad().defined());
}

TEST_P(ReplicasTest, AreLeftAsTheyAreByFreezing) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), Options());
  const void* const replica = replicas.Update(2)[1].get();
  replicas.Update(2)[1]->first->bias.sum().backward();
  net->first->bias.set_requires_grad(false);
  EXPECT_EQ(replicas.Update(2)[1].get(), replica);
}

TEST(Replicas, ShareTheModulesMemoryOnItsDevice) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2));
  EXPECT_EQ(replicas.Update(2)[1]->last->weight.data_ptr(), net->last->weight.data_ptr());
}

TEST(Replicas, HaveBuffersOfTheirOwn) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2));
  EXPECT_NE(replicas.Update(2)[1]->norm->running_mean.data_ptr(), net->norm->running_mean.data_ptr());
}

// Copies take no more memory than the parameters, but for alignment, and none that a clone had stays.
TEST(Replicas, CopyParametersIntoBlocksOfTheirSize) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2), WithMemoryOfTheirOwn());
  const Net replica = replicas.Update(2)[1];
  std::set<const void*> blocks;
  int64_t bytes = 0, expected = 0;
  for (const at::Tensor& parameter : replica->parameters()) {
    if (blocks.insert(parameter.storage().data()).second) bytes += static_cast<int64_t>(parameter.storage().nbytes());
    expected += (static_cast<int64_t>(parameter.nbytes()) + 63) / 64 * 64;
  }
  EXPECT_EQ(blocks.size(), 1);
  EXPECT_EQ(bytes, expected);
}

TEST(Replicas, OfAModuleWithoutCloneNeedAFunction) {
  Plain plain;
  const absl::Status status = TorchStatus("", [&] { Replicate(plain, Cpus(2)); });
  EXPECT_THAT(status.message(), HasSubstr("give dp::Parts a function that makes one"));
  const std::vector<Plain> nets = Replicate<Plain>(plain, Cpus(2), {}, [] { return Plain(); });
  ExpectSameValues(*plain, *nets[1]);
}

TEST(Replicas, NameAParameterThatTheFunctionMakesOtherwise) {
  const absl::Status status = TorchStatus("", [&] { Replicate<Plain>(Plain(), Cpus(2), {}, [] { return Plain(3); }); });
  EXPECT_EQ(status.message(),
            "DataParallel: expected replicas with the module's parameters, found linear.weight of shape [3, 4] in the "
            "place of linear.weight of shape [2, 4]");
}

TEST(Replicas, NameASubmoduleThatTheFunctionLeavesOut) {
  Plain plain;
  plain->register_module("dropout", torch::nn::Dropout());
  const absl::Status status = TorchStatus("", [&] { Replicate<Plain>(plain, Cpus(2), {}, [] { return Plain(); }); });
  EXPECT_EQ(status.message(),
            "DataParallel: expected replicas with the module's modules, found nothing in the place of "
            "torch::nn::DropoutImpl");
}

// Has the clone() of a Net.
struct DerivedNetImpl : NetImpl {};

TEST(Replicas, OfADerivedModuleAreNoneOfItsBaseClass) {
  const auto net = std::make_shared<DerivedNetImpl>();
  const absl::Status own = TorchStatus("", [&] { Replicate(net, Cpus(2)); });
  const absl::Status as_base = TorchStatus("", [&] { Replicate(std::shared_ptr<NetImpl>(net), Cpus(2)); });
  EXPECT_THAT(own.message(), HasSubstr("NetImpl in the place of lockstep::dp::(anonymous namespace)::DerivedNetImpl"));
  EXPECT_EQ(as_base, own);
}

TEST(Replicas, HaveNoTensorOfTheModule) {
  Plain plain;
  const auto copy = [&] { return Plain(std::make_shared<PlainImpl>(*plain)); };
  EXPECT_EQ(TorchStatus("", [&] { Replicate<Plain>(plain, Cpus(2), {}, copy); }).message(),
            "DataParallel: expected replicas with separate tensors, found one with a tensor of the module or of "
            "another replica");
  EXPECT_TRUE(plain->linear->weight.is_leaf());
}

struct ChangingImpl : NetImpl {
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>&) const override {
    TORCH_CHECK(children().size() == 3, "cannot clone");
    return std::make_shared<ChangingImpl>();
  }
  using torch::nn::Module::unregister_module;
};

TEST(Replicas, AreMadeAnewAfterAFailure) {
  const auto net = std::make_shared<ChangingImpl>();
  Replicas<std::shared_ptr<ChangingImpl>> replicas(net, Cpus(2));
  replicas.Update(2);
  net->register_module("more", torch::nn::Dropout());
  EXPECT_THAT(TorchStatus("", [&] { replicas.Update(2); }).message(), HasSubstr("cannot clone"));
  net->unregister_module("more");
  ExpectSameValues(*net, *replicas.Update(2)[1]);
}

TEST(Replicas, AreAsManyAsDevices) {
  Net net;
  Replicas<Net> replicas(net, Cpus(2));
  EXPECT_EQ(TorchStatus("", [&] { replicas.Update(0); }).message(), "Replicas: expected 1 to 2 replicas, found 0");
  EXPECT_EQ(TorchStatus("", [&] { replicas.Update(3); }).message(), "Replicas: expected 1 to 2 replicas, found 3");
  EXPECT_EQ(TorchStatus("", [&] { Replicas<Net>(net, {}); }).message(),
            "Replicas: expected one device or more, found none");
}

TEST(Replicas, AreMadeOfPointersToModulesToo) {
  const auto net = std::make_shared<NetImpl>();
  ExpectSameValues(*net, *Replicate(net, Cpus(2))[1]);
}

TEST(Replicas, OfSequentialDrawDropoutOfTheirOwn) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
  const std::vector<torch::nn::Sequential> nets = Replicate(net, Cpus(2));
  const at::Tensor x = at::rand({8, 4});
  torch::nn::Sequential replica = nets[1];
  EXPECT_FALSE(replica->forward(x).equal(replica->forward(x)));
}

TEST(Replicate, NamesATensorOnAnotherDevice) {
  Net net;
  EXPECT_EQ(TorchStatus("", [&] { Replicate(net, {c10::Device("meta")}); }).message(),
            "module must have its parameters and buffers on device meta (device_ids[0]) but found one of them, "
            "first.weight, on device: cpu");
  EXPECT_EQ(TorchStatus("", [&] { Replicate(net, {}); }).message(),
            "Replicate: expected one device or more, found none");
}

}  // namespace
}  // namespace lockstep::dp
