#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::ExpectClose;
using testing::Gradients;
using testing::OnRanks;
using testing::Share;
using testing::Thrown;
using testing::Wrapped;

// Remembers the dtypes that its forward saw.
struct ProbeImpl : torch::nn::Module {
  ProbeImpl() {
    weight = register_parameter("weight", torch::arange(1, 5, torch::kFloat).div(7));
    scale = register_buffer("scale", torch::full({4}, 0.3f));
    calls = register_buffer("calls", torch::zeros({1}, torch::kLong));
  }
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& rows) {
    seen = {x.scalar_type(), weight.scalar_type(), scale.scalar_type(), rows.scalar_type(), calls.scalar_type()};
    if (fail) throw std::runtime_error("in forward");
    return torch::tanh(x.index_select(0, rows) * weight);
  }
  torch::Tensor weight, scale, calls;
  std::vector<torch::Dtype> seen;
  bool fail = false;
};

Options Mixed(std::optional<torch::Dtype> param, std::optional<torch::Dtype> reduce, bool view = false) {
  Options options;
  options.mixed_precision = MixedPrecision{param, reduce, std::nullopt};
  options.gradient_as_bucket_view = view;
  return options;
}

torch::Tensor Rows() { return torch::arange(4); }

torch::Tensor Inputs(int rank, int step) { return Share(Batch(8, 4, step), rank, 2).to(torch::kFloat); }

// The gradient of one rank alone, computed in `dtype`.
torch::Tensor LocalGradient(int rank, int step, torch::Dtype dtype) {
  ProbeImpl net;
  net.to(dtype);
  net.forward(Inputs(rank, step).to(dtype), Rows()).sum().backward();
  return net.weight.grad();
}

// The average of both ranks' gradients in `reduce`.
torch::Tensor Average(int step, torch::Dtype compute, torch::Dtype reduce) {
  const auto half = [&](int rank) { return LocalGradient(rank, step, compute).to(reduce).div(2); };
  return (half(0) + half(1)).to(torch::kFloat);
}

void Step(DistributedDataParallel<std::shared_ptr<ProbeImpl>>& ddp, const ProcessGroup& group, int step) {
  ddp(Inputs(group.rank(), step), Rows()).sum().backward();
}

void ExpectGradients(const Options& options, torch::Dtype compute, torch::Dtype reduce) {
  OnRanks(2, [&](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, options);
    const torch::Tensor& weight = ddp.module()->weight;
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad(/*set_to_none=*/step != 1);
      Step(ddp, group, step);
      EXPECT_EQ(weight.scalar_type(), torch::kFloat);
      EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat);
      ExpectClose({weight.grad()}, {Average(step, compute, reduce)}, 0);
      EXPECT_FALSE(weight.grad().equal(Average(step, torch::kFloat, torch::kFloat)));
    }
  });
}

TEST(MixedPrecision, ForwardAndBackwardComputeInParamDtypeAndReduceInItToo) {
  for (const bool view : {false, true})
    ExpectGradients(Mixed(torch::kBFloat16, std::nullopt, view), torch::kBFloat16, torch::kBFloat16);
}

TEST(MixedPrecision, ReduceDtypeIsWhatGradientsAreAveragedIn) {
  ASSERT_FALSE(Average(0, torch::kBFloat16, torch::kFloat).equal(Average(0, torch::kBFloat16, torch::kBFloat16)));
  for (const bool view : {false, true}) {
    ExpectGradients(Mixed(torch::kBFloat16, torch::kFloat, view), torch::kBFloat16, torch::kFloat);
    ExpectGradients(Mixed(std::nullopt, torch::kBFloat16, view), torch::kFloat, torch::kBFloat16);
  }
}

TEST(MixedPrecision, FloatingInputsAreCastAndOthersNot) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, Mixed(torch::kBFloat16, std::nullopt));
    const torch::Tensor before = ddp.module()->weight.detach().clone();
    Step(ddp, group, 0);
    EXPECT_EQ(ddp.module()->seen, (std::vector<torch::Dtype>{torch::kBFloat16, torch::kBFloat16, torch::kFloat,
                                                             torch::kLong, torch::kLong}));
    EXPECT_TRUE(ddp.module()->weight.equal(before));  // not rounded
  });
}

TEST(MixedPrecision, BufferDtypeHoldsFromWrappingOnForFloatingBuffers) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.mixed_precision = MixedPrecision{std::nullopt, std::nullopt, torch::kDouble};
    auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, options);
    EXPECT_EQ(ddp.module()->scale.scalar_type(), torch::kDouble);
    Step(ddp, group, 0);
    EXPECT_EQ(ddp.module()->seen,
              (std::vector<torch::Dtype>{torch::kFloat, torch::kFloat, torch::kDouble, torch::kLong, torch::kLong}));
  });
}

TEST(MixedPrecision, AForwardWithoutGradientsGivesTheParametersBack) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, Mixed(torch::kBFloat16, std::nullopt));
    {
      const torch::NoGradGuard no_grad;
      EXPECT_EQ(ddp(Inputs(group.rank(), 0), Rows()).scalar_type(), torch::kBFloat16);
    }
    EXPECT_EQ(ddp.module()->weight.scalar_type(), torch::kFloat);
    Step(ddp, group, 0);
    ExpectClose({ddp.module()->weight.grad()}, {Average(0, torch::kBFloat16, torch::kBFloat16)}, 0);
  });
}

TEST(MixedPrecision, GradientsAccumulateInFullPrecisionUnderNoSync) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, Mixed(torch::kBFloat16, torch::kFloat, view));
      for (int round = 0; round < 2; ++round) {
        ddp.zero_grad();
        {
          const NoSync no_sync(ddp);
          Step(ddp, group, 0);
          EXPECT_EQ(ddp.module()->weight.scalar_type(), torch::kFloat);
          EXPECT_EQ(ddp.module()->weight.grad().scalar_type(), torch::kFloat);
        }
        Step(ddp, group, 1);
        torch::Tensor expected = torch::zeros({4});
        for (int rank = 0; rank < 2; ++rank) {
          for (int step = 0; step < 2; ++step)
            expected += LocalGradient(rank, step, torch::kBFloat16).to(torch::kFloat) / 2;
        }
        ExpectClose({ddp.module()->weight.grad()}, {expected}, 1e-6);  // float's own rounding
      }
    }
  });
}

TEST(MixedPrecision, TheOptimizerStepsParametersOfFullPrecision) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, Mixed(torch::kBFloat16, std::nullopt));
    ProbeImpl reference;
    torch::optim::SGD optimizer(ddp.parameters(), 1e-3), reference_optimizer(reference.parameters(), 1e-3);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      Step(ddp, group, step);
      optimizer.step();
      reference_optimizer.zero_grad();
      for (int rank = 0; rank < 2; ++rank) reference.forward(Inputs(rank, step), Rows()).sum().div(2).backward();
      reference_optimizer.step();
    }
    // Five steps of 1e-3 times gradients below 4, each within a few times 2^-8.
    ExpectClose(ddp.parameters(), reference.parameters(), 5e-4);
    EXPECT_FALSE(ddp.parameters()[0].equal(ddp.parameters()[0].to(torch::kBFloat16).to(torch::kFloat)));
  });
}

TEST(MixedPrecision, AnExceptionInForwardLeavesTheNextStepRight) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<ProbeImpl>(), group, Mixed(torch::kBFloat16, std::nullopt));
    ddp.module()->fail = true;
    EXPECT_EQ(Thrown([&] { ddp(Inputs(0, 0), Rows()); }).message(), "in forward");
    ddp.module()->fail = false;
    Step(ddp, group, 0);
    EXPECT_EQ(ddp.module()->weight.scalar_type(), torch::kFloat);
    ExpectClose({ddp.module()->weight.grad()}, {Average(0, torch::kBFloat16, torch::kBFloat16)}, 0);
  });
}

TEST(MixedPrecision, AModuleLetGoBeforeItsBackwardGetsItsParametersBack) {
  OnRanks(2, [](ProcessGroup& group) {
    auto net = std::make_shared<ProbeImpl>();
    {
      auto ddp = Wrapped(net, group, Mixed(torch::kBFloat16, std::nullopt));
      ddp(Inputs(group.rank(), 0), Rows());
    }
    EXPECT_TRUE(net->weight.equal(ProbeImpl().weight));
  });
}

}  // namespace
}  // namespace lockstep::ddp
