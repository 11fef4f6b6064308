#include "lockstep/ddp/overlapped_optimizer.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;
using ::testing::HasSubstr;

constexpr int kLayers = 3, kWidth = 4;
constexpr double kTinyBucket = 1e-4;  // MiB: 104 bytes, less than a weight

struct NetImpl : torch::nn::Module {
  NetImpl() {
    auto generator = at::detail::createCPUGenerator(5);
    for (int i = 0; i < kLayers; ++i) {
      weights.push_back(
          register_parameter(absl::StrCat("weight", i), at::randn({kWidth, kWidth}, generator, at::kDouble)));
      biases.push_back(register_parameter(absl::StrCat("bias", i), at::zeros({kWidth}, at::kDouble)));
    }
  }
  at::Tensor forward(at::Tensor x, int layers = kLayers) {
    for (int i = 0; i < layers; ++i) {
      x = at::tanh(at::linear(x, weights[i], biases[i]));
      if (on_gradient && x.requires_grad()) {
        x.register_hook([this, i](const at::Tensor& gradient) {
          on_gradient(i);
          return gradient;
        });
      }
    }
    return x.pow(2).mean();
  }
  std::vector<at::Tensor> weights, biases;
  std::function<void(int layer)> on_gradient;  // called in backward, before the layer's own gradients
};
TORCH_MODULE(Net);

at::Tensor Inputs(int step, int rank) {
  return at::randn({3, kWidth}, at::detail::createCPUGenerator(100 * step + rank), at::kDouble);
}

Options SeveralBuckets(bool view = false) {
  Options options;
  options.bucket_cap_mb = kTinyBucket;
  options.gradient_as_bucket_view = view;
  return options;
}

void ExpectSameBits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << "parameter " << i;
}

// Five steps, over which buckets are rebuilt, by an overlapped and by a plain `Base`.
template <typename Base, typename BaseOptions>
void ExpectAsAfterBackward(const BaseOptions& defaults) {
  for (const bool view : {false, true}) {
    EXPECT_EQ(RunRanksOk(2,
                         [&](ProcessGroup& group) {
                           auto ddp = *Wrap(Net(), &group, SeveralBuckets(view));
                           auto plain = *Wrap(Net(), &group, SeveralBuckets(view));
                           auto overlapped = OverlappedOptimizer<Base>::Create(ddp, defaults);
                           ASSERT_TRUE(overlapped.ok()) << overlapped.status();
                           Base optimizer(plain.parameters(), defaults);
                           for (int step = 0; step < 5; ++step) {
                             ddp(Inputs(step, group.rank())).backward();
                             optimizer.zero_grad();
                             plain(Inputs(step, group.rank())).backward();
                             optimizer.step();
                             ExpectSameBits(ddp.parameters(), plain.parameters());
                             for (const at::Tensor& parameter : ddp.parameters())
                               EXPECT_FALSE(parameter.grad().defined());
                           }
                           EXPECT_FALSE(ddp.parameters()[0].equal(Net()->weights[0]));
                         }),
              absl::OkStatus());
  }
}

TEST(OverlappedOptimizer, StepsToTheBitAsOneAfterBackwardDoes) {
  ExpectAsAfterBackward<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  ExpectAsAfterBackward<torch::optim::Adam>(torch::optim::AdamOptions(0.01));
  ExpectAsAfterBackward<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01).amsgrad(true));
  ExpectAsAfterBackward<optim::AdamW>(optim::AdamWOptions(0.01).amsgrad(true));
  ExpectAsAfterBackward<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.01));
  ExpectAsAfterBackward<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1));
}

TEST(OverlappedOptimizer, StepsTheLastLayerWhileTheFirstHasYetToRunBackward) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Net(), &group, SeveralBuckets());
                         auto optimizer =
                             OverlappedOptimizer<torch::optim::SGD>::Create(ddp, torch::optim::SGDOptions(0.1));
                         ASSERT_TRUE(optimizer.ok()) << optimizer.status();
                         ddp(Inputs(0, group.rank())).backward();  // one bucket; the next forward lays out several
                         Net& net = ddp.module();
                         const at::Tensor last = net->weights[2].detach().clone();
                         const at::Tensor first = net->weights[0].detach().clone();
                         int looked = 0;
                         net->on_gradient = [&](int layer) {
                           // Both ranks have begun the last layer's all_reduce, which was issued before this barrier.
                           if (layer == 1) {
                             EXPECT_EQ(group.Barrier(), absl::OkStatus());
                           }
                           if (layer != 0) return;
                           EXPECT_FALSE(net->weights[2].equal(last));
                           EXPECT_FALSE(net->weights[2].grad().defined());
                           EXPECT_TRUE(net->weights[0].equal(first));
                           ++looked;
                         };
                         ddp(Inputs(1, group.rank())).backward();
                         EXPECT_EQ(looked, 1);
                         EXPECT_FALSE(net->weights[0].equal(first));
                         net->on_gradient = nullptr;
                       }),
            absl::OkStatus());
}

TEST(OverlappedOptimizer, UnderNoSyncNothingIsStepped) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Net(), &group, SeveralBuckets());
                         auto plain = *Wrap(Net(), &group, SeveralBuckets());
                         auto overlapped =
                             OverlappedOptimizer<torch::optim::SGD>::Create(ddp, torch::optim::SGDOptions(0.1));
                         ASSERT_TRUE(overlapped.ok()) << overlapped.status();
                         torch::optim::SGD optimizer(plain.parameters(), torch::optim::SGDOptions(0.1));
                         for (int step = 0; step < 3; ++step) {
                           {
                             const NoSync no_sync(ddp);
                             ddp(Inputs(step, group.rank())).backward();
                             ExpectSameBits(ddp.parameters(), plain.parameters());
                             EXPECT_TRUE(ddp.parameters()[0].grad().defined());
                           }
                           ddp(Inputs(step + 50, group.rank())).backward();
                           optimizer.zero_grad();
                           {
                             const NoSync no_sync(plain);
                             plain(Inputs(step, group.rank())).backward();
                           }
                           plain(Inputs(step + 50, group.rank())).backward();
                           optimizer.step();
                           ExpectSameBits(ddp.parameters(), plain.parameters());
                         }
                       }),
            absl::OkStatus());
}

TEST(OverlappedOptimizer, OptionsMayChangeBetweenSteps) {
  using torch::optim::SGDOptions;
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Net(), &group);
                         auto plain = *Wrap(Net(), &group);
                         auto overlapped = OverlappedOptimizer<torch::optim::SGD>::Create(ddp, SGDOptions(0.5));
                         ASSERT_TRUE(overlapped.ok()) << overlapped.status();
                         torch::optim::SGD optimizer(plain.parameters(), SGDOptions(0.5));
                         for (int step = 0; step < 4; ++step) {
                           if (step == 1) {
                             (*overlapped)->set_lr(0.25);
                             optimizer.param_groups()[0].options().set_lr(0.25);
                           }
                           if (step == 2) {
                             const SGDOptions later = SGDOptions(0.125).momentum(0.9);
                             (*overlapped)->set_options(later);
                             optimizer.param_groups()[0].set_options(std::make_unique<SGDOptions>(later));
                           }
                           ddp(Inputs(step, group.rank())).backward();
                           optimizer.zero_grad();
                           plain(Inputs(step, group.rank())).backward();
                           optimizer.step();
                           ExpectSameBits(ddp.parameters(), plain.parameters());
                         }
                       }),
            absl::OkStatus());
}

TEST(OverlappedOptimizer, GoesOnFromSavedStates) {
  using Adam = OverlappedOptimizer<torch::optim::Adam>;
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Net(), &group, SeveralBuckets());
                         auto optimizer = *Adam::Create(ddp, torch::optim::AdamOptions(0.01));
                         for (int step = 0; step < 3; ++step) ddp(Inputs(step, group.rank())).backward();
                         auto restored = *Wrap(Net(), &group, SeveralBuckets());
                         auto restored_optimizer = *Adam::Create(restored, torch::optim::AdamOptions(0.01));
                         const torch::NoGradGuard no_grad;
                         for (size_t i = 0; i < optimizer->parameters().size(); ++i) {
                           const auto& from = optimizer->parameters()[i];
                           const auto& to = restored_optimizer->parameters()[i];
                           EXPECT_EQ(from.name, to.name);
                           to.parameter.detach().copy_(from.parameter);
                           std::stringstream file;
                           torch::save(*from.optimizer, file);
                           torch::load(*to.optimizer, file);
                         }
                         const torch::AutoGradMode grad(true);
                         for (int step = 3; step < 6; ++step) {
                           ddp(Inputs(step, group.rank())).backward();
                           restored(Inputs(step, group.rank())).backward();
                         }
                         ExpectSameBits(restored.parameters(), ddp.parameters());
                         EXPECT_EQ(optimizer->parameters().front().name, "weight0");
                       }),
            absl::OkStatus());
}

TEST(OverlappedOptimizer, WhatNoRankUsesIsNotStepped) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         Options options = SeveralBuckets();
                         options.find_unused_parameters = true;
                         auto ddp = *Wrap(Net(), &group, options);
                         auto optimizer = OverlappedOptimizer<torch::optim::SGD>::Create(
                             ddp, torch::optim::SGDOptions(0.1).momentum(0.9));
                         ASSERT_TRUE(optimizer.ok()) << optimizer.status();
                         ddp(Inputs(0, group.rank())).backward();
                         const at::Tensor unused = ddp.module()->weights[2].detach().clone();
                         const at::Tensor used = ddp.module()->weights[1].detach().clone();
                         ddp(Inputs(1, group.rank()), /*layers=*/1 + group.rank()).backward();
                         EXPECT_TRUE(ddp.module()->weights[2].equal(unused));
                         EXPECT_FALSE(ddp.module()->weights[1].equal(used));  // by rank 1 only
                       }),
            absl::OkStatus());
}

TEST(OverlappedOptimizer, KeepsGradientsWhereAskedTo) {
  EXPECT_EQ(RunRanksOk(2,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Net(), &group, SeveralBuckets());
                         auto plain = *Wrap(Net(), &group, SeveralBuckets());
                         OverlappedOptions keep;
                         keep.set_to_none = false;
                         auto optimizer =
                             OverlappedOptimizer<torch::optim::SGD>::Create(ddp, torch::optim::SGDOptions(0.1), keep);
                         ASSERT_TRUE(optimizer.ok()) << optimizer.status();
                         ddp(Inputs(0, group.rank())).backward();
                         plain(Inputs(0, group.rank())).backward();
                         for (size_t i = 0; i < ddp.parameters().size(); ++i)
                           EXPECT_TRUE(ddp.parameters()[i].grad().equal(plain.parameters()[i].grad()));
                       }),
            absl::OkStatus());
}

TEST(OverlappedOptimizer, AParameterThatAnotherWrapperAveragesIsNamed) {
  EXPECT_EQ(
      RunRanksOk(1,
                 [](ProcessGroup& group) {
                   Net net;
                   auto first = *Wrap(net, &group, SeveralBuckets());
                   auto ddp = *Wrap(net, &group, SeveralBuckets());
                   auto optimizer = OverlappedOptimizer<torch::optim::SGD>::Create(ddp, torch::optim::SGDOptions(0.1));
                   ASSERT_TRUE(optimizer.ok()) << optimizer.status();
                   ddp(Inputs(0, group.rank())).backward();
                   const at::Tensor both = first(Inputs(1, group.rank())) + ddp(Inputs(1, group.rank()));
                   EXPECT_THAT(TorchStatus("", [&] { both.backward(); }).message(),
                               HasSubstr("rank 0: parameter bias2 is averaged by another wrapper in this backward"));
                 }),
      absl::OkStatus());
}

TEST(OverlappedOptimizer, OneAtATimeAndNotWithCastParameters) {
  using Sgd = OverlappedOptimizer<torch::optim::SGD>;
  EXPECT_EQ(RunRanksOk(1,
                       [](ProcessGroup& group) {
                         auto ddp = *Wrap(Net(), &group);
                         auto first = Sgd::Create(ddp, torch::optim::SGDOptions(0.1));
                         ASSERT_TRUE(first.ok()) << first.status();
                         EXPECT_EQ(Sgd::Create(ddp, torch::optim::SGDOptions(0.1)).status(),
                                   absl::FailedPreconditionError(
                                       "rank 0: OverlappedOptimizer: the module has an overlapped optimizer already"));
                         first->reset();
                         const at::Tensor before = ddp.parameters()[0].detach().clone();
                         ddp(Inputs(0, 0)).backward();
                         EXPECT_TRUE(ddp.parameters()[0].equal(before));
                         EXPECT_TRUE(Sgd::Create(ddp, torch::optim::SGDOptions(0.1)).ok());
                         Options options;
                         options.mixed_precision.emplace().param_dtype = at::kBFloat16;
                         auto cast = *Wrap(Net(), &group, options);
                         const absl::Status refused = Sgd::Create(cast, torch::optim::SGDOptions(0.1)).status();
                         EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
                         EXPECT_THAT(refused.message(), HasSubstr("mixed_precision.param_dtype"));
                         auto other = *Wrap(Net(), &group);
                         EXPECT_EQ(Sgd::Create(other, torch::optim::SGDOptions(-1)).status().code(),
                                   absl::StatusCode::kInternal);
                       }),
            absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp
