// The reference is each function without Recompute().

#include "lockstep/models/recompute/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/models/recompute/testing/functions.h"
#include "lockstep/models/recompute/testing/same_bits.h"

namespace lockstep::models {
namespace {

using testing::Counted;
using testing::ExpectSameBits;
using testing::Function;
using testing::Input;
using testing::Inputs;
using testing::Layer;
using testing::Recomputed;
using testing::SumOf;
using testing::Tensors;

// The outputs, the loss and the gradients.
Tensors Trained(const Tensors& outputs, const Tensors& inputs) {
  Tensors all = outputs;
  all.push_back(SumOf(outputs));
  all.back().backward();
  for (const at::Tensor& input : inputs) all.push_back(input.grad());
  return all;
}

void ExpectSame(const Function& function, const RecomputeOptions& options = {}) {
  torch::manual_seed(7);
  const Tensors plain = Inputs();
  const Tensors expected = Trained(function(plain), plain);
  const at::Tensor next = at::rand({3});
  torch::manual_seed(7);
  const Tensors recomputed = Inputs();
  ExpectSameBits(Trained(Recomputed(function, recomputed, options), recomputed), expected);
  ExpectSameBits({at::rand({3})}, {next});  // the generator goes on as it would have
}

TEST(Recompute, GivesTheSameBits) {
  ExpectSame(Layer);
  RecomputeOptions options;
  options.early_stop = false;
  options.determinism_check = false;
  ExpectSame(Layer, options);
}

TEST(Recompute, DrawsTheSameRandomNumbers) {
  const Function dropout = [](const Tensors& inputs) {
    return Tensors{at::dropout(at::mm(at::dropout(inputs[0], 0.3, true), inputs[1]), 0.5, true)};
  };
  ExpectSame(dropout);
  RecomputeOptions options;
  options.preserve_rng_state = false;
  torch::manual_seed(7);
  const Tensors plain = Inputs(), recomputed = Inputs();
  const Tensors expected = Trained(dropout(plain), plain);
  torch::manual_seed(7);
  const Tensors found = Trained(Recomputed(dropout, recomputed, options), recomputed);
  ExpectSameBits({found[0]}, {expected[0]});
  EXPECT_FALSE(at::equal(found[2], expected[2]));
}

TEST(Recompute, DrawsTheSameNumbersFromAGeneratorOfTheProgram) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  RecomputeOptions options;
  options.generators = {generator};
  const Function noisy = [generator](const Tensors& inputs) {
    return Tensors{at::mm(inputs[0], inputs[1]) * at::rand({4, 5}, generator)};
  };
  const Tensors plain = Inputs(), recomputed = Inputs();
  const Tensors expected = Trained(noisy(plain), plain);
  generator.set_current_seed(3);
  ExpectSameBits(Trained(Recomputed(noisy, recomputed, options), recomputed), expected);
}

TEST(Recompute, KeepsNoActivation) {
  const Tensors inputs = Inputs();
  c10::weak_intrusive_ptr<c10::StorageImpl> activation(at::empty({0}).storage().getWeakStorageImpl());
  const Tensors outputs = Recompute(
      [&activation](const Tensors& inputs) {
        const at::Tensor hidden = at::mm(inputs[0], inputs[1]).exp();
        activation = hidden.storage().getWeakStorageImpl();
        return Tensors{hidden.square().sum()};
      },
      inputs);
  EXPECT_TRUE(activation.expired());
  outputs[0].backward();
  EXPECT_TRUE(activation.expired());
}

TEST(Recompute, RunsOnceABackwardAndStopsEarly) {
  const Counted early{Layer};
  SumOf(Recompute(early, Inputs())).backward();
  EXPECT_EQ(*early.counts, std::make_pair(2, 1));
  RecomputeOptions options;
  options.early_stop = false;
  const Counted late{Layer};
  SumOf(Recompute(late, Inputs(), options)).backward();
  EXPECT_EQ(*late.counts, std::make_pair(2, 2));
}

// Python goes on to the last tensor that the first forward saved.
TEST(Recompute, StopsAtTheLastTensorThatAGraphStillNeeds) {
  int reached = 0;
  const Tensors inputs = Inputs();
  Tensors outputs = Recompute(
      [&reached](const Tensors& inputs) {
        const at::Tensor first = inputs[0].exp();
        ++reached;
        return Tensors{first, first.sin().tanh()};
      },
      inputs);
  outputs[1].reset();
  outputs[0].sum().backward();
  EXPECT_EQ(reached, 1);
  ExpectSameBits({inputs[0].grad()}, {inputs[0].exp()});
}

TEST(Recompute, AFunctionMayCatchTheEarlyStop) {
  ExpectSame([](const Tensors& inputs) {
    try {
      return Layer(inputs);
    } catch (...) {
      return Layer(inputs);
    }
  });
}

TEST(Recompute, RunsAgainForEachBackward) {
  const Tensors inputs = Inputs(), plain = Inputs();
  const Counted counted{Layer};
  const at::Tensor loss = SumOf(Recompute(counted, inputs)), reference = SumOf(Layer(plain));
  for (const bool keep : {true, true, false}) {
    loss.backward({}, keep);
    reference.backward({}, keep);
  }
  EXPECT_EQ(counted.counts->first, 4);
  ExpectSameBits({inputs[0].grad(), inputs[1].grad()}, {plain[0].grad(), plain[1].grad()});
}

TEST(Recompute, FreesWhatABackwardDoesNotTake) {
  const Tensors inputs = Inputs();
  c10::weak_intrusive_ptr<c10::StorageImpl> activation(at::empty({0}).storage().getWeakStorageImpl());
  const Tensors outputs = Recompute(
      [&activation](const Tensors& inputs) {
        const at::Tensor hidden = at::mm(inputs[0], inputs[1]).exp();
        activation = hidden.storage().getWeakStorageImpl();
        return Tensors{inputs[0].exp(), hidden.square().sum()};
      },
      inputs);
  const at::Tensor gradient = torch::autograd::grad({outputs[0].sum()}, {inputs[0]}, {}, /*retain_graph=*/true)[0];
  ExpectSameBits({gradient}, {inputs[0].exp()});
  EXPECT_TRUE(activation.expired());
}

TEST(Recompute, DifferentiatesTwice) {
  const auto twice = [](const Tensors& outputs, const Tensors& inputs) {
    const Tensors first = torch::autograd::grad({SumOf(outputs)}, {inputs[0], inputs[1]}, {}, /*retain_graph=*/true,
                                                /*create_graph=*/true);
    SumOf(first).backward();
    return Tensors{first[0], first[1], inputs[0].grad(), inputs[1].grad()};
  };
  const Tensors plain = Inputs(), recomputed = Inputs();
  ExpectSameBits(twice(Recomputed(Layer, recomputed), recomputed), twice(Layer(plain), plain));
}

TEST(Recompute, AFunctionMayComputeGradients) {
  const Function penalty = [](const Tensors& inputs) {
    const at::Tensor output = at::tanh(at::mm(inputs[0], inputs[1])).sum();
    const Tensors gradient = torch::autograd::grad({output}, {inputs[0]}, {}, true, /*create_graph=*/true);
    return Tensors{output, gradient[0].square().sum().exp()};
  };
  ExpectSame(penalty);
  RecomputeOptions options;
  options.early_stop = false;
  ExpectSame(penalty, options);
}

TEST(Recompute, CallsMayBeNested) {
  const Function inner = [](const Tensors& inputs) { return Layer(inputs); };
  ExpectSame([inner](const Tensors& inputs) {
    const Tensors first = Recompute(inner, {inputs[0].exp(), inputs[1].sin(), inputs[2]});
    return Recompute(
        [inner](const Tensors& inputs) {
          return Recompute(inner, {inputs[0].t().tanh(), inputs[0].sin(), at::ones({5, 5})});
        },
        first);
  });
}

// The inner call keeps its input, which the outer call computes.
TEST(Recompute, AnInnerCallsInputIsNotKept) {
  const Tensors inputs = Inputs();
  c10::weak_intrusive_ptr<c10::StorageImpl> activation(at::empty({0}).storage().getWeakStorageImpl());
  const at::Tensor loss = Recompute(
      [&activation](const Tensors& inputs) {
        const at::Tensor hidden = inputs[0].exp();
        activation = hidden.storage().getWeakStorageImpl();
        return Recompute([](const at::Tensor& x) { return x.tanh().sum(); }, hidden);
      },
      inputs);
  EXPECT_TRUE(activation.expired());
  loss.backward();
  const Tensors plain = Inputs();
  plain[0].exp().tanh().sum().backward();
  ExpectSameBits({inputs[0].grad()}, {plain[0].grad()});
}

TEST(Recompute, TakesParametersThatAreNoInputs) {
  const auto gradients = [](bool recompute) {
    torch::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Dropout(0.4),
                              torch::nn::Linear(8, 3));
    const at::Tensor x = Input({4, 6}, 5);
    const at::Tensor output =
        recompute ? Recompute([net](const at::Tensor& x) mutable { return net->forward(x); }, x) : net->forward(x);
    output.square().sum().backward();
    Tensors all = {output};
    for (const at::Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
    return all;
  };
  ExpectSameBits(gradients(true), gradients(false));
}

TEST(Recompute, LeavesAModulesBuffersAsTheFirstForwardLeftThem) {
  torch::nn::BatchNorm1d plain(6), recomputed(6);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = Input({4, 6}, step);
    // The layer outside of Recompute() saves the buffers too.
    (plain(x) + plain(x.exp())).square().sum().backward();
    (Recompute(recomputed, x) + recomputed(x.exp())).square().sum().backward();
  }
  ExpectSameBits(recomputed->buffers(), plain->buffers());
  ExpectSameBits({recomputed->weight.grad()}, {plain->weight.grad()});
}

TEST(Recompute, ReturnsAnything) {
  const Tensors inputs = Inputs();
  const auto [sum, name] = Recompute(
      [](const Tensors& inputs) { return std::make_tuple(inputs[0].exp().sum(), std::string("sum")); }, inputs);
  sum.backward();
  EXPECT_EQ(name, "sum");
  ExpectSameBits({inputs[0].grad()}, {inputs[0].exp()});
}

TEST(Recompute, TakesUndefinedInputs) {
  const at::Tensor x = Input({3}, 1).requires_grad_();
  Recompute([](const Tensors& inputs) { return inputs[1].defined() ? inputs[1] : inputs[0].exp(); }, {x, at::Tensor()})
      .sum()
      .backward();
  ExpectSameBits({x.grad()}, {x.exp()});
}

TEST(Recompute, WithoutGradientModeRunsTheFunctionOnly) {
  const Counted counted{Layer};
  const at::NoGradGuard no_grad;
  ExpectSameBits(Recompute(counted, Inputs()), Layer(Inputs()));
  EXPECT_EQ(counted.counts.use_count(), 1);
}

TEST(Recompute, APartWithoutGradientsStaysOne) {
  ExpectSame([](const Tensors& inputs) {
    at::Tensor scale;
    {
      const at::NoGradGuard no_grad;
      scale = at::mm(inputs[0], inputs[1]).exp();
    }
    return Tensors{at::mm(inputs[0], inputs[1]).tanh() * scale};
  });
}

struct Squared : torch::autograd::Function<Squared> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  // Unpacks twice.
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    return {gradients[0] * (context->get_saved_variables()[0] + context->get_saved_variables()[0])};
  }
};

TEST(Recompute, TakesFunctionsOfTheProgram) {
  ExpectSame([](const Tensors& inputs) { return Tensors{Squared::apply(inputs[0].exp()).tanh()}; });
}

TEST(Recompute, TakesChangesInPlace) {
  ExpectSame([](const Tensors& inputs) {
    at::Tensor hidden = at::mm(inputs[0], inputs[1]);
    hidden.mul_(2).relu_();
    at::Tensor shifted = hidden + 1;
    shifted.narrow(0, 0, 2).sigmoid_();
    return Tensors{shifted};
  });
}

TEST(Recompute, WorksOnOtherThreads) {
  const Tensors inputs = Inputs(), plain = Inputs();
  Tensors outputs;
  std::thread([&] { outputs = Recomputed(Layer, inputs); }).join();
  std::thread([&] { SumOf(outputs).backward(); }).join();
  SumOf(Layer(plain)).backward();
  ExpectSameBits({inputs[0].grad(), inputs[1].grad()}, {plain[0].grad(), plain[1].grad()});
}

TEST(Recompute, ThreadsMayGoBackwardThroughOneGraphTogether) {
  const Tensors inputs = Inputs(), plain = Inputs();
  const at::Tensor loss = SumOf(Recomputed(Layer, inputs));
  const Tensors expected = torch::autograd::grad({SumOf(Layer(plain))}, {plain[0], plain[1]});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j)
        ExpectSameBits(torch::autograd::grad({loss}, {inputs[0], inputs[1]}, {}, /*retain_graph=*/true), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Recompute, FreesTheFunctionWithTheGraph) {
  for (const bool backward : {false, true}) {
    const Counted counted{Layer};
    Tensors outputs = Recompute(counted, Inputs());
    EXPECT_GT(counted.counts.use_count(), 1);
    if (backward) SumOf(outputs).backward();
    outputs.clear();
    EXPECT_EQ(counted.counts.use_count(), 1);
  }
}

}  // namespace
}  // namespace lockstep::models
