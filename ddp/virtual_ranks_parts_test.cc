// The other parts of a training program give the same bits on any number of ranks too.

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/clip_grad_norm.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/overlapped_optimizer.h"
#include "lockstep/ddp/testing/training.h"
#include "lockstep/ddp/zero/zero_redundancy_optimizer.h"

namespace lockstep::ddp {
namespace {

constexpr int kVirtualRanks = 4, kSteps = 4;
constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(6, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        second(register_module("second", torch::nn::Linear(8, 3))) {
    const at::NoGradGuard no_grad;
    double start = 0;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(at::arange(parameter.numel()).add(++start).mul(12.9898).sin().mul(0.4).view_as(parameter));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return second(norm(first(x)).relu()); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(Net);

at::Tensor Inputs(int step, int virtual_rank) {
  return at::arange(5 * 6).add(1.7 * step + 3.1 * virtual_rank).mul(78.233).sin().view({5, 6});
}

at::Tensor Loss(const at::Tensor& output) { return output.to(at::kFloat).pow(2).mul(at::arange(3).add(1)).sum(); }

torch::optim::SGDOptions Sgd() { return torch::optim::SGDOptions(0.01).momentum(0.9); }

Options VirtualRanksOf(int count) {
  Options options;
  options.virtual_ranks = count;
  return options;
}

// The state that all ranks must have.
std::vector<at::Tensor> StateOf(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> state = testing::Gradients(parameters);
  for (const at::Tensor& parameter : parameters) state.push_back(parameter.detach().clone());
  return state;
}

template <typename AnyNet>
void BackwardOfVirtualRanks(DistributedDataParallel<AnyNet>& ddp, int step) {
  for (const int virtual_rank : ddp.VirtualRanks(step)) Loss(ddp(Inputs(step, virtual_rank))).backward();
}

// Throws errors.
using Program = std::function<std::vector<at::Tensor>(comm::ProcessGroup& group)>;

std::vector<std::vector<at::Tensor>> TrainOn(int ranks, const std::string& backend, const Program& program) {
  std::vector<std::vector<at::Tensor>> results(ranks);
  const auto body = [&](comm::ProcessGroup& group) {
    return TorchStatus("", [&] { results[group.rank()] = program(group); });
  };
  comm::InitOptions options;
  options.backend = backend;
  const auto statuses =
      backend == "threads" ? comm::testing::RunRanks(ranks, body) : comm::testing::InitRanks(options, ranks, body);
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  return results;
}

// The result on one rank, which all ranks must have on two, three and four.
std::vector<at::Tensor> ExpectSameOnAnyNumberOfRanks(const Program& program) {
  const std::vector<at::Tensor> expected = TrainOn(1, "threads", program)[0];
  for (const char* backend : {"threads", "shm"}) {
    for (int ranks = 2; ranks <= kVirtualRanks; ++ranks) {
      for (const std::vector<at::Tensor>& found : TrainOn(ranks, backend, program)) {
        testing::ExpectSameBits(found, expected, absl::StrCat(ranks, " ranks over ", backend));
      }
    }
  }
  return expected;
}

// Trains in the usual way, with what `step` does in place of backward passes and step().
template <typename Step>
Program Training(const Step& step) {
  return [step](comm::ProcessGroup& group) {
    const Net net;
    auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
    torch::optim::SGD optimizer(ddp.parameters(), Sgd());
    std::vector<at::Tensor> notes;
    for (int i = 0; i < kSteps; ++i) {
      optimizer.zero_grad();
      step(group, ddp, optimizer, i, notes);
    }
    std::vector<at::Tensor> state = StateOf(ddp.parameters());
    state.insert(state.end(), notes.begin(), notes.end());
    return state;
  };
}

using Ddp = DistributedDataParallel<Net>;
using Notes = std::vector<at::Tensor>;

std::vector<at::Tensor> PlainTraining() {
  return TrainOn(1, "threads",
                 Training([](comm::ProcessGroup&, Ddp& ddp, torch::optim::SGD& optimizer, int step, Notes&) {
                   BackwardOfVirtualRanks(ddp, step);
                   optimizer.step();
                 }))[0];
}

TEST(VirtualRanksParts, AStepThatOverflowedOnOneVirtualRankIsSkippedOnAllRanks) {
  const auto program = [](comm::ProcessGroup& group) {
    const Net net;
    auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
    torch::optim::SGD optimizer(ddp.parameters(), Sgd());
    auto scaler = GradScaler::Create();
    ThrowIfError(scaler.status());
    std::vector<at::Tensor> scales;
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      for (const int virtual_rank : ddp.VirtualRanks(step)) {
        const float factor = step == 1 && virtual_rank == 2 ? kInfinity : 1;
        scaler->Scale(Loss(ddp(Inputs(step, virtual_rank))) * factor).backward();
      }
      const absl::StatusOr<bool> stepped = scaler->Step(optimizer);
      ThrowIfError(stepped.status());
      EXPECT_EQ(*stepped, step != 1) << "rank " << group.rank() << ", step " << step;
      ThrowIfError(scaler->Update());
      scales.push_back(at::full({}, scaler->GetScale()));
    }
    EXPECT_EQ(scaler->GetScale(), 32768);
    std::vector<at::Tensor> state = StateOf(ddp.parameters());
    state.insert(state.end(), scales.begin(), scales.end());
    return state;
  };
  ExpectSameOnAnyNumberOfRanks(program);
}

TEST(VirtualRanksParts, GradientsAreClippedByTheSameNorm) {
  const auto state = ExpectSameOnAnyNumberOfRanks(
      Training([](comm::ProcessGroup& group, Ddp& ddp, torch::optim::SGD& optimizer, int step, Notes& notes) {
        BackwardOfVirtualRanks(ddp, step);
        const absl::StatusOr<double> norm = ClipGradNorm(group, ddp.parameters(), /*max_norm=*/0.5);
        ThrowIfError(norm.status());
        EXPECT_GT(*norm, 0.5);
        notes.push_back(at::full({}, *norm, at::kDouble));
        optimizer.step();
      }));
  EXPECT_EQ(state.size(), 2 * Net()->parameters().size() + kSteps);
}

// The state of Adam's moments on the rank that saves a checkpoint.
TEST(VirtualRanksParts, AShardedOptimizerHasTheSameConsolidatedState) {
  using Adam = zero::ZeroRedundancyOptimizer<torch::optim::Adam>;
  std::vector<at::Tensor> expected;
  for (int ranks = 1; ranks <= kVirtualRanks; ++ranks) {
    const auto program = [](comm::ProcessGroup& group) {
      const Net net;
      auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
      auto created = Adam::Create(ddp.parameters(), torch::optim::AdamOptions(0.01), &group);
      ThrowIfError(created.status());
      Adam& optimizer = **created;
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        BackwardOfVirtualRanks(ddp, step);
        optimizer.step();
      }
      ThrowIfError(optimizer.ConsolidateStateDict(0));
      std::vector<at::Tensor> state = StateOf(ddp.parameters());
      if (group.rank() > 0) return state;
      for (const at::Tensor& parameter : ddp.parameters()) {
        const auto& moments =
            static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
        state.insert(state.end(), {moments.exp_avg(), moments.exp_avg_sq(), at::full({}, moments.step(), at::kLong)});
      }
      return state;
    };
    const std::vector<at::Tensor> found = TrainOn(ranks, "threads", program)[0];
    if (ranks == 1) expected = found;
    testing::ExpectSameBits(found, expected, absl::StrCat(ranks, " ranks"));
  }
  EXPECT_EQ(expected.size(), 5 * Net()->parameters().size());
}

TEST(VirtualRanksParts, AnOverlappedOptimizerStepsOnceAStep) {
  const auto program = [](comm::ProcessGroup& group) {
    const Net net;
    auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
    auto optimizer = OverlappedOptimizer<torch::optim::SGD>::Create(ddp, Sgd());
    ThrowIfError(optimizer.status());
    for (int step = 0; step < kSteps; ++step) BackwardOfVirtualRanks(ddp, step);
    std::vector<at::Tensor> parameters;
    for (const at::Tensor& parameter : ddp.parameters()) parameters.push_back(parameter.detach().clone());
    return parameters;
  };
  const std::vector<at::Tensor> found = ExpectSameOnAnyNumberOfRanks(program), plain = PlainTraining();
  const auto parameters = static_cast<int64_t>(found.size());
  testing::ExpectSameBits(found, {plain.begin() + parameters, plain.end()}, "with optimizer.step()");
}

TEST(VirtualRanksParts, AutocastComputesTheSameBits) {
  const auto autocast = Training([](comm::ProcessGroup&, Ddp& ddp, torch::optim::SGD& optimizer, int step, Notes&) {
    for (const int virtual_rank : ddp.VirtualRanks(step)) {
      at::Tensor loss;
      {
        const Autocast autocast(at::kCPU, at::kBFloat16);
        loss = Loss(ddp(Inputs(step, virtual_rank)));
      }
      loss.backward();
    }
    optimizer.step();
  });
  const std::vector<at::Tensor> found = ExpectSameOnAnyNumberOfRanks(autocast);
  EXPECT_FALSE(found.back().equal(PlainTraining().back())) << "it computed in float";
}

TEST(VirtualRanksParts, GradientsAccumulateOverStepsWithoutZeroGrad) {
  const auto program = [](comm::ProcessGroup& group) {
    const Net net;
    auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
    torch::optim::SGD optimizer(ddp.parameters(), Sgd());
    for (int step = 0; step < 2 * kSteps; ++step) {
      BackwardOfVirtualRanks(ddp, step);
      if (step % 3 != 2) continue;
      optimizer.step();
      optimizer.zero_grad(/*set_to_none=*/step == 2);
    }
    return StateOf(ddp.parameters());
  };
  ExpectSameOnAnyNumberOfRanks(program);
}

TEST(VirtualRanksParts, TwoWrappedModulesTakeTurnsAndShareALoss) {
  const auto program = [](comm::ProcessGroup& group) {
    const Net net;
    auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
    auto head = testing::Wrapped(testing::SeededMlp(3), group, VirtualRanksOf(kVirtualRanks));
    torch::optim::SGD optimizer(ddp.parameters(), Sgd()), head_optimizer(head.parameters(), Sgd());
    const auto head_loss = [&](const at::Tensor& x) {
      return head(at::cat({x, x.slice(1, 0, 1)}, 1).to(at::kDouble)).pow(2).sum();
    };
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      head_optimizer.zero_grad();
      if (step % 2 == 0) {  // one after another
        BackwardOfVirtualRanks(ddp, step);
        for (const int virtual_rank : head.VirtualRanks(step))
          head_loss(Inputs(step, virtual_rank).slice(1, 0, 3)).backward();
      } else {
        auto of_ddp = ddp.VirtualRanks(step), of_head = head.VirtualRanks(step);
        auto a = of_ddp.begin(), b = of_head.begin();
        for (; a != of_ddp.end(); ++a, ++b) head_loss(ddp(Inputs(step, *a))).backward();
      }
      optimizer.step();
      head_optimizer.step();
    }
    std::vector<at::Tensor> state = StateOf(ddp.parameters());
    for (const at::Tensor& tensor : StateOf(head.parameters())) state.push_back(tensor);
    return state;
  };
  ExpectSameOnAnyNumberOfRanks(program);
}

// Trains without an optimizer, with these factors of the virtual ranks' losses. Returns the gradients of each step.
Program GradientsWithFactors(const std::vector<double>& factors) {
  return Training([factors](comm::ProcessGroup&, Ddp& ddp, torch::optim::SGD&, int step, Notes& notes) {
    for (const int virtual_rank : ddp.VirtualRanks(step)) {
      (Loss(ddp(Inputs(step, virtual_rank))) * factors[(virtual_rank + step) % kVirtualRanks]).backward();
    }
    for (const at::Tensor& gradient : testing::Gradients(ddp.parameters())) notes.push_back(gradient);
  });
}

TEST(VirtualRanksParts, ANaNOfOneVirtualRankHasTheSameBits) {
  const auto state = ExpectSameOnAnyNumberOfRanks(GradientsWithFactors({1, kNaN, 2, 3}));
  EXPECT_TRUE(state.back().isnan().all().item<bool>());
}

// The processor takes the sign of one of two NaNs, and which one depends on the instruction.
TEST(VirtualRanksParts, NaNsAndInfinitiesOfSeveralAreInTheSamePlaces) {
  const Program with_nans = GradientsWithFactors({1, kInfinity, -kInfinity, kNaN});
  const auto state = ExpectSameOnAnyNumberOfRanks([&](comm::ProcessGroup& group) {
    std::vector<at::Tensor> tensors = with_nans(group);
    for (at::Tensor& tensor : tensors) tensor = at::where(tensor.isnan(), at::full_like(tensor, kNaN), tensor);
    return tensors;
  });
  EXPECT_TRUE(state.back().isnan().any().item<bool>());
}

// Each virtual rank's gradient is rounded before it is added.
TEST(VirtualRanksParts, GradientsMayBeReducedInALowerPrecision) {
  const auto program = [](comm::ProcessGroup& group) {
    Options options = VirtualRanksOf(kVirtualRanks);
    options.mixed_precision.emplace().reduce_dtype = at::kBFloat16;
    const Net net;
    auto ddp = testing::Wrapped(net, group, options);
    BackwardOfVirtualRanks(ddp, 0);
    return testing::Gradients(ddp.parameters());
  };
  ExpectSameOnAnyNumberOfRanks(program);
}

TEST(VirtualRanksParts, ParametersMayBeDouble) {
  const auto program = [](comm::ProcessGroup& group) {
    auto ddp = testing::Wrapped(testing::SeededMlp(5), group, VirtualRanksOf(kVirtualRanks));
    torch::optim::SGD optimizer(ddp.parameters(), Sgd());
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      for (const int virtual_rank : ddp.VirtualRanks(step)) {
        ddp(Inputs(step, virtual_rank).slice(1, 0, 4).to(at::kDouble)).pow(2).sum().backward();
      }
      optimizer.step();
    }
    return StateOf(ddp.parameters());
  };
  EXPECT_EQ(ExpectSameOnAnyNumberOfRanks(program).front().dtype(), at::kDouble);
}

// Its output depends on a buffer that forward changes.
struct CountingNetImpl : torch::nn::Module {
  CountingNetImpl()
      : weight(register_parameter("weight", at::arange(6).sub(2.5))), count(register_buffer("count", at::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& x) {
    count += x.abs().mean();
    return (x * weight * count).sum();
  }
  at::Tensor weight, count;
};
TORCH_MODULE(CountingNet);

TEST(VirtualRanksParts, EachVirtualRankStartsFromTheBuffersOfTheLastStep) {
  const auto program = [](comm::ProcessGroup& group) {
    const CountingNet net;
    auto ddp = testing::Wrapped(net, group, VirtualRanksOf(kVirtualRanks));
    std::vector<at::Tensor> gradients;
    for (int step = 0; step < kSteps; ++step) {
      ddp.zero_grad();
      for (const int virtual_rank : ddp.VirtualRanks(step)) ddp(Inputs(step, virtual_rank)).backward();
      gradients.push_back(net->weight.grad().clone());
    }
    return gradients;
  };
  ExpectSameOnAnyNumberOfRanks(program);
}

}  // namespace
}  // namespace lockstep::ddp
