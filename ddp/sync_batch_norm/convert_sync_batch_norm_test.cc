#include "lockstep/ddp/sync_batch_norm/convert_sync_batch_norm.h"

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/sync_batch_norm/sync_batch_norm.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

torch::Tensor Values(std::vector<int64_t> shape, uint64_t seed) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble);
}

// The rows of this rank, three.
torch::Tensor Share(const torch::Tensor& whole, const ProcessGroup& group) {
  return whole.narrow(0, 3 * group.rank(), 3);
}

double LargestDifference(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

// Returns the result of a BatchNorm over the joined batch, with the weights of a new layer.
torch::Tensor Normalized(const torch::Tensor& whole) {
  torch::nn::BatchNorm1d reference(whole.size(1));
  reference->to(torch::kDouble);
  return reference(whole);
}

// Its forward calls its member.
struct BlockImpl : torch::nn::Module {
  BlockImpl() : bn1(register_module("bn1", torch::nn::BatchNorm1d(4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return bn1(x); }
  torch::nn::BatchNorm1d bn1;
};
TORCH_MODULE(Block);

struct NetImpl : torch::nn::Module {
  NetImpl()
      : layer1(register_module("layer1", torch::nn::Sequential(Block(), torch::nn::BatchNorm1d(4), Block()))),
        bn(register_module("bn", torch::nn::BatchNorm1d(4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return bn(layer1->forward(x)); }
  torch::nn::Sequential layer1;
  torch::nn::BatchNorm1d bn;
};
TORCH_MODULE(Net);

// A typed class whose normalisation is in containers.
struct ContainersImpl : torch::nn::Module {
  ContainersImpl()
      : list(register_module("list", torch::nn::ModuleList(torch::nn::BatchNorm1d(4), torch::nn::ReLU()))),
        dict(register_module("dict", torch::nn::ModuleDict())) {
    dict->update(
        std::vector<std::pair<std::string, std::shared_ptr<Module>>>{{"norm", torch::nn::BatchNorm2d(4).ptr()}});
  }
  torch::nn::ModuleList list;
  torch::nn::ModuleDict dict;
};
TORCH_MODULE(Containers);

TEST(ConvertSyncBatchNorm, MakesASequentialCallTheNewLayer) {
  const auto body = [](ProcessGroup& group) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Functional(torch::relu));
    net->to(torch::kDouble);
    const absl::StatusOr<int> replaced = ConvertSyncBatchNorm(*net, &group);
    ASSERT_TRUE(replaced.ok()) << replaced.status();
    EXPECT_EQ(*replaced, 1);
    const torch::Tensor whole = Values({6, 4}, 1);
    EXPECT_LT(LargestDifference(net->forward(Share(whole, group)), Share(torch::relu(Normalized(whole)), group)),
              1e-13);
    // It is the registered one too.
    EXPECT_NE(net->named_children()["0"]->as<SyncBatchNorm>(), nullptr);
    EXPECT_EQ(net->ptr(0), net->named_children()["0"]);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ConvertSyncBatchNorm, FindsSequentialsInTypedClassesAndKeepsNames) {
  const auto body = [](ProcessGroup& group) {
    struct Outer : torch::nn::Module {
      Outer() {
        features = register_module("features", torch::nn::Sequential({{"linear", torch::nn::Linear(4, 4)},
                                                                      {"norm", torch::nn::BatchNorm1d(4)}}));
      }
      torch::nn::Sequential features;
    };
    Outer net;
    net.to(torch::kDouble);
    {
      const torch::NoGradGuard no_grad;
      for (const auto& item : net.named_parameters()) item.value().copy_(Values(item.value().sizes().vec(), 2));
    }
    const std::vector<std::string> names = net.named_parameters().keys();
    const absl::StatusOr<int> replaced = ConvertSyncBatchNorm(net, &group);
    ASSERT_TRUE(replaced.ok()) << replaced.status();
    EXPECT_EQ(net.named_parameters().keys(), names);
    const torch::Tensor whole = Values({6, 4}, 1);
    const torch::Tensor hidden = net.features->ptr<torch::nn::LinearImpl>(0)->forward(whole);
    const torch::Tensor expected = Normalized(hidden) * Values({4}, 2) + Values({4}, 2);
    EXPECT_LT(LargestDifference(net.features->forward(Share(whole, group)), Share(expected, group)), 1e-12);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ConvertSyncBatchNorm, ReplacesChildrenOfModuleListsAndModuleDicts) {
  const auto body = [](ProcessGroup& group) {
    Containers net;
    net->to(torch::kDouble);
    const absl::StatusOr<int> replaced = ConvertSyncBatchNorm(*net, &group);
    ASSERT_TRUE(replaced.ok()) << replaced.status();
    EXPECT_EQ(*replaced, 2);
    auto* in_list = net->list[0]->as<SyncBatchNorm>();
    auto* in_dict = net->dict["norm"]->as<SyncBatchNorm>();
    ASSERT_NE(in_list, nullptr);
    ASSERT_NE(in_dict, nullptr);
    EXPECT_EQ(net->list->named_children()["0"].get(), in_list);
    EXPECT_EQ(net->dict->named_children()["norm"].get(), in_dict);
    const torch::Tensor whole = Values({6, 4}, 1);
    EXPECT_LT(LargestDifference(in_list->forward(Share(whole, group)), Share(Normalized(whole), group)), 1e-13);
    EXPECT_LT(LargestDifference(in_dict->forward(Share(whole, group)), Share(Normalized(whole), group)), 1e-13);
  };
  EXPECT_EQ(RunRanksOk(2, body), absl::OkStatus());
}

TEST(ConvertSyncBatchNorm, KeepsTheTensorsOptionsAndFlags) {
  torch::nn::BatchNorm2d old(torch::nn::BatchNormOptions(4).eps(0.5).momentum(c10::nullopt));
  old->weight.set_requires_grad(false);
  torch::nn::Sequential net(old, torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(4).affine(false)));
  old->eval();
  ASSERT_TRUE(ConvertSyncBatchNorm(*net, nullptr).ok());
  const auto layer = std::dynamic_pointer_cast<SyncBatchNormImpl>(net->ptr(0));
  ASSERT_NE(layer, nullptr);
  EXPECT_TRUE(layer->named_parameters()["weight"].is_same(old->weight));
  EXPECT_TRUE(layer->named_parameters()["bias"].is_same(old->bias));
  EXPECT_TRUE(layer->named_buffers()["running_mean"].is_same(old->running_mean));
  EXPECT_TRUE(layer->named_buffers()["running_var"].is_same(old->running_var));
  EXPECT_TRUE(layer->named_buffers()["num_batches_tracked"].is_same(old->num_batches_tracked));
  EXPECT_FALSE(layer->weight.requires_grad());
  EXPECT_TRUE(layer->bias.requires_grad());
  EXPECT_EQ(layer->options.eps(), 0.5);
  EXPECT_FALSE(layer->options.momentum().has_value());
  EXPECT_FALSE(layer->is_training());
  EXPECT_TRUE(net->ptr(1)->is_training());
  EXPECT_TRUE(net->ptr(1)->parameters().empty());
}

TEST(ConvertSyncBatchNorm, LetsOptimizersMadeBeforeStepTheNewLayer) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(4));
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  ASSERT_TRUE(ConvertSyncBatchNorm(*net, nullptr).ok());
  const torch::Tensor before = net->ptr(0)->as<SyncBatchNorm>()->bias.detach().clone();
  net->forward(torch::ones({2, 4})).sum().backward();
  optimizer.step();
  EXPECT_LT(LargestDifference(net->ptr(0)->as<SyncBatchNorm>()->bias, before - 0.2), 1e-6);
}

TEST(ConvertSyncBatchNorm, ReplacesALayerInTwoPlacesByOne) {
  torch::nn::BatchNorm1d shared(4);
  torch::nn::Sequential net(shared, torch::nn::ReLU(), shared);
  const absl::StatusOr<int> replaced = ConvertSyncBatchNorm(*net, nullptr);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(*replaced, 1);
  EXPECT_NE(net->ptr(0)->as<SyncBatchNorm>(), nullptr);
  EXPECT_EQ(net->ptr(0), net->ptr(2));
  EXPECT_EQ(net->named_children()["0"], net->named_children()["2"]);
}

TEST(ConvertSyncBatchNorm, NamesAllMembersItCannotReplaceAndChangesNothing) {
  Net net;
  const std::vector<std::shared_ptr<torch::nn::Module>> before = net->modules();
  const absl::Status status = ConvertSyncBatchNorm(*net, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(": layer1.0.bn1, layer1.2.bn1, bn; pass the model a norm "
                                                             "factory (ddp::SyncBatchNormFactory) instead"),
                                                   Not(HasSubstr("layer1.1"))));
  EXPECT_EQ(net->modules(), before);
  EXPECT_NE(net->layer1->ptr(1)->as<torch::nn::BatchNorm1d>(), nullptr);
}

TEST(ConvertSyncBatchNorm, RefusesAMemberThatASequentialHoldsToo) {
  struct Both : torch::nn::Module {
    Both()
        : norm(register_module("norm", torch::nn::BatchNorm1d(4))),
          tail(register_module("tail", torch::nn::Sequential(norm))) {}
    torch::nn::BatchNorm1d norm;
    torch::nn::Sequential tail;
  };
  Both net;
  const absl::Status status = ConvertSyncBatchNorm(net, nullptr).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(": norm; pass"));
  EXPECT_NE(net.tail->ptr(0)->as<torch::nn::BatchNorm1d>(), nullptr);
}

TEST(ConvertSyncBatchNorm, RefusesABatchNormItselfAndClassesDerivedFromIt) {
  struct Own : torch::nn::BatchNorm1dImpl {
    using BatchNorm1dImpl::BatchNorm1dImpl;
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  torch::nn::BatchNorm1d norm(4);
  EXPECT_EQ(ConvertSyncBatchNorm(*norm, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
  torch::nn::Sequential net(std::make_shared<Own>(4));
  EXPECT_THAT(std::string(ConvertSyncBatchNorm(*net, nullptr).status().message()), HasSubstr(": 0; pass"));
}

TEST(ConvertSyncBatchNorm, FindsNothingToDoInAModelWithoutBatchNorm) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::InstanceNorm1d(4));
  const absl::StatusOr<int> replaced = ConvertSyncBatchNorm(*net, nullptr);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(*replaced, 0);
}

}  // namespace
}  // namespace lockstep::ddp
