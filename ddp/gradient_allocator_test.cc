#include "lockstep/ddp/gradient_allocator.h"

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/internal/slot_requests.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using comm::testing::RunRanksOk;

constexpr int64_t kWidth = 192;  // weights of 147,456 bytes
constexpr int kSteps = 6;

struct Process {
  Process() { InstallGradientAllocator(); }
};
const Process process;

// Where operators wrote the weights' gradients, as their own outputs, before the reducer sees them.
struct Watched {
  std::vector<const void*> arrived;
};

// Where it stands, backward may keep memory of a weight's size: what was expected to be a gradient's is not.
struct Hoard : torch::autograd::Function<Hoard> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    if (hoarding) hoard.push_back(torch::full({kWidth, kWidth}, 7.0f));
    return gradients;
  }
  static thread_local bool hoarding;
  static thread_local std::vector<torch::Tensor> hoard;
};
thread_local bool Hoard::hoarding = false;
thread_local std::vector<torch::Tensor> Hoard::hoard;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
      const torch::NoGradGuard no_grad;
      at::Generator generator = at::detail::createCPUGenerator(10 + i);
      layers.back()->weight.copy_(torch::randn({kWidth, kWidth}, generator) * 0.05);
      layers.back()->bias.zero_();
    }
    watch = std::make_shared<Watched>();
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = Hoard::apply(torch::tanh(layer(x)));
    return x;
  }
  std::vector<torch::nn::Linear> layers;
  std::shared_ptr<Watched> watch;
};
TORCH_MODULE(Net);

torch::Tensor Batch(int rank, int step, int64_t rows = 8) {
  return torch::randn({rows, kWidth}, at::detail::createCPUGenerator(1000 * rank + step));
}

// Returns the gradients of training without the allocator's help: each rank's gradients times 1/n, summed in rank
// order.
std::vector<torch::Tensor> Reference(int ranks, int64_t rows) {
  std::vector<Net> nets;
  for (int r = 0; r < ranks; ++r) nets.emplace_back();
  for (int step = 0; step < kSteps; ++step) {
    for (int r = 0; r < ranks; ++r) {
      nets[r]->zero_grad();
      nets[r](Batch(r, step, rows)).pow(2).sum().backward();
    }
    const torch::NoGradGuard no_grad;
    const size_t count = nets[0]->parameters().size();
    for (size_t p = 0; p < count; ++p) {
      torch::Tensor sum = nets[0]->parameters()[p].grad() * (1.0 / ranks);
      for (int r = 1; r < ranks; ++r) sum += nets[r]->parameters()[p].grad() * (1.0 / ranks);
      for (int r = 0; r < ranks; ++r) nets[r]->parameters()[p] -= 0.01 * sum;
    }
  }
  return nets[0]->parameters();
}

void Step(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor parameter : parameters) parameter -= 0.01 * parameter.grad();
}

// Returns how many of the weights' gradients of the last step their operators wrote where they are now.
int BornInPlace(const Net& net) {
  int born = 0;
  for (size_t i = 0; i < net->layers.size(); ++i)
    born += net->watch->arrived[i] == net->layers[i]->weight.grad().data_ptr();
  return born;
}

void Watch(const Net& net) {
  net->watch->arrived.resize(net->layers.size());
  for (size_t i = 0; i < net->layers.size(); ++i) {
    net->layers[i]->weight.register_hook(
        [watch = net->watch, i](const torch::Tensor& gradient) { watch->arrived[i] = gradient.data_ptr(); });
  }
}

TEST(GradientAllocator, GradientsAreComputedInTheBucketsAndAreTheSameBits) {
  ASSERT_TRUE(internal::GradientAllocatorInstalled());
  for (const bool view : {false, true}) {
    for (const int ranks : {1, 2, 3}) {
      const std::vector<torch::Tensor> expected = Reference(ranks, 8);
      EXPECT_EQ(RunRanksOk(ranks,
                           [&](ProcessGroup& group) {
                             Options options;
                             options.gradient_as_bucket_view = view;
                             Net net;
                             Watch(net);
                             auto ddp = Wrap(net, &group, options);
                             ASSERT_TRUE(ddp.ok()) << ddp.status();
                             for (int step = 0; step < kSteps; ++step) {
                               ddp->zero_grad();
                               (*ddp)(Batch(group.rank(), step)).pow(2).sum().backward();
                               Step(ddp->parameters());
                             }
                             EXPECT_EQ(BornInPlace(net), 3);
                             for (size_t p = 0; p < expected.size(); ++p)
                               EXPECT_TRUE(net->parameters()[p].equal(expected[p])) << p;
                           }),
                absl::OkStatus());
    }
  }
}

TEST(GradientAllocator, WhatElseIsOfThatSizeDoesNoHarm) {
  // As many rows as columns: the gradients of activations are as large as those of weights.
  const std::vector<torch::Tensor> expected = Reference(2, kWidth);
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         Net net;
                         auto ddp = Wrap(net, &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         for (int step = 0; step < kSteps; ++step) {
                           ddp->zero_grad();
                           (*ddp)(Batch(group.rank(), step, kWidth)).pow(2).sum().backward();
                           Step(ddp->parameters());
                         }
                         for (size_t p = 0; p < expected.size(); ++p)
                           EXPECT_TRUE(net->parameters()[p].equal(expected[p])) << p;
                       }),
            absl::OkStatus());
}

TEST(GradientAllocator, AnotherTensorInAGradientsPlaceKeepsItsNumbersAndSoDoesTheGradient) {
  const std::vector<torch::Tensor> expected = Reference(2, 8);
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         Hoard::hoard.clear();
                         Net net;
                         auto ddp = Wrap(net, &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         for (int step = 0; step < kSteps; ++step) {
                           Hoard::hoarding = step >= 3 && group.rank() == 1;
                           ddp->zero_grad();
                           (*ddp)(Batch(group.rank(), step)).pow(2).sum().backward();
                           Step(ddp->parameters());
                         }
                         EXPECT_EQ(Hoard::hoard.size(), group.rank() == 1 ? 9 : 0);
                         for (const torch::Tensor& kept : Hoard::hoard)
                           EXPECT_TRUE(kept.equal(torch::full({kWidth, kWidth}, 7.0f)));
                         for (size_t p = 0; p < expected.size(); ++p)
                           EXPECT_TRUE(net->parameters()[p].equal(expected[p])) << p;
                       }),
            absl::OkStatus());
}

TEST(GradientAllocator, GradientsThatAreKeptAndAccumulatedStayRight) {
  EXPECT_EQ(RunRanksOk(2,
                       [&](ProcessGroup& group) {
                         Net net, whole;
                         auto ddp = Wrap(net, &group);
                         ASSERT_TRUE(ddp.ok()) << ddp.status();
                         std::vector<torch::Tensor> kept, copies;
                         for (int step = 0; step < kSteps; ++step) {
                           if (step % 2 == 0) {
                             ddp->zero_grad();
                             whole->zero_grad();
                           }
                           (*ddp)(Batch(group.rank(), step)).pow(2).sum().backward();
                           ((whole(Batch(0, step)).pow(2).sum() + whole(Batch(1, step)).pow(2).sum()) / 2).backward();
                           for (size_t p = 0; p < net->parameters().size(); ++p) {
                             EXPECT_TRUE(torch::allclose(net->parameters()[p].grad(), whole->parameters()[p].grad(),
                                                         1e-4, 1e-5));
                           }
                           if (step % 2 == 1) {
                             kept.push_back(net->layers[0]->weight.grad());
                             copies.push_back(kept.back().clone());
                           }
                         }
                         for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(kept[i].equal(copies[i])) << i;
                       }),
            absl::OkStatus());
}

TEST(GradientAllocator, WrappersMayShareParameters) {
  EXPECT_EQ(
      RunRanksOk(
          2,
          [&](ProcessGroup& group) {
            Net net, whole;
            auto a = Wrap(net, &group), b = Wrap(net, &group);
            ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
            for (int step = 0; step < 2 * kSteps; ++step) {
              net->zero_grad();
              whole->zero_grad();
              const auto loss_a = (*a)(Batch(group.rank(), step)).pow(2).sum();
              const auto loss_b = (*b)(Batch(group.rank(), step + 99)).pow(2).sum();
              if (step % 3 == 0) {
                loss_a.backward();
                loss_b.backward();
              } else {
                (loss_a + loss_b).backward();
              }
              for (int rank = 0; rank < 2; ++rank) {
                (whole(Batch(rank, step)).pow(2).sum() / 2).backward();
                (whole(Batch(rank, step + 99)).pow(2).sum() / 2).backward();
              }
              for (size_t p = 0; p < net->parameters().size(); ++p) {
                EXPECT_TRUE(torch::allclose(net->parameters()[p].grad(), whole->parameters()[p].grad(), 1e-4, 1e-5))
                    << "step " << step << " parameter " << p;
              }
              Step(net->parameters());
              Step(whole->parameters());
            }
          }),
      absl::OkStatus());
}

}  // namespace
}  // namespace lockstep::ddp
