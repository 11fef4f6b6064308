#include <torch/torch.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::Branches;
using testing::ExpectClose;
using testing::ExpectTrainsAsOneProcess;
using testing::Gradients;
using ::testing::HasSubstr;
using testing::OnRanks;
using testing::Share;
using testing::Thrown;
using testing::Used;
using testing::Wrapped;

Options Static(bool view = false) {
  Options options;
  options.static_graph = true;
  options.gradient_as_bucket_view = view;
  options.bucket_cap_mb = 1e-6;  // a bucket a parameter, once laid out anew
  return options;
}

TEST(StaticGraph, UnusedParametersAreFoundInTheFirstStep) {
  for (const bool view : {false, true}) {
    for (const bool skip : {false, true}) {
      for (const bool set_to_none : {false, true}) {
        SCOPED_TRACE(absl::StrCat("view ", view, ", skip ", skip, ", set_to_none ", set_to_none));
        Options options = Static(view);
        options.skip_all_reduce_unused_params = skip;
        const auto plan = [](int rank, int) { return rank == 0 ? Used{3, 1} : Used{1, 2}; };
        ExpectTrainsAsOneProcess(2, options, set_to_none, plan);
        ExpectTrainsAsOneProcess(3, options, set_to_none, plan);
      }
    }
  }
}

TEST(StaticGraph, ABucketThatNoRankUsesIsSkippedFromTheSecondStepOn) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options = Static();
    options.skip_all_reduce_unused_params = true;
    auto ddp = Wrapped(Branches(4), group, options);
    for (int step = 0; step < 4; ++step) ddp(Batch(4, 4, step), Used{0, 2}).mean().backward();
    EXPECT_EQ(ddp.statistics().front().bytes(), 4 * 4 * 8);
    EXPECT_EQ(ddp.statistics().back().bytes(), 2 * 4 * 8);
  });
}

// tanh(x w), computed a second time in backward, by a backward of its own: what checkpointing does.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const c10::IValue& w) {
    context->saved_data["w"] = w;
    context->save_for_backward({x});
    return torch::tanh(torch::matmul(x, w.toTensor()));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode grad(true);
    const torch::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::tanh(torch::matmul(x, context->saved_data["w"].toTensor())).backward(gradients[0]);
    return {x.grad(), torch::Tensor()};
  }
};

struct CheckpointedImpl : torch::nn::Module {
  CheckpointedImpl() {
    const auto square = [](int seed) { return Batch(4, 4, seed).div(2); };
    first = register_parameter("first", square(50));
    middle = register_parameter("middle", square(51));
    last = register_parameter("last", square(52));
  }
  static torch::Tensor Layer(const torch::Tensor& x, const torch::Tensor& w, bool recompute) {
    return recompute ? Recomputed::apply(x, c10::IValue(w)) : torch::tanh(torch::matmul(x, w));
  }
  // `middle` is used twice. `ends`: the other layers are recomputed too.
  torch::Tensor forward(const torch::Tensor& x, bool recompute, bool ends) {
    const torch::Tensor hidden = Layer(Layer(Layer(x, first, ends), middle, recompute), middle, recompute);
    return Layer(hidden, last, ends).pow(2).mean();
  }
  torch::Tensor first, middle, last;
};

void ExpectCheckpointedRight(bool ends, bool view) {
  OnRanks(2, [&](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<CheckpointedImpl>(), group, Static(view));
    CheckpointedImpl reference;
    for (int step = 0; step < 4; ++step) {
      SCOPED_TRACE(absl::StrCat("ends ", ends, ", view ", view, ", step ", step));
      ddp.zero_grad(/*set_to_none=*/step % 2 == 0);
      reference.zero_grad();
      ddp(Share(Batch(8, 4, step), group).requires_grad_(), true, ends).backward();
      reference.forward(Batch(8, 4, step), false, false).backward();
      ExpectClose(Gradients(ddp.parameters()), Gradients(reference.parameters()));
    }
  });
}

TEST(StaticGraph, AParameterWhoseGradientArrivesInPartsIsReducedOnceAllAreIn) {
  for (const bool view : {false, true}) ExpectCheckpointedRight(/*ends=*/false, view);
}

TEST(StaticGraph, EveryLayerMayBeRecomputed) {
  for (const bool view : {false, true}) ExpectCheckpointedRight(/*ends=*/true, view);
}

TEST(StaticGraph, WithoutItAGradientInPartsIsAnErrorThatSaysSo) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(std::make_shared<CheckpointedImpl>(), group);
    const auto loss = ddp(Batch(8, 4, 0), true, false);
    EXPECT_EQ(Thrown([&] { loss.backward(); }).message(),
              absl::StrCat("rank ", group.rank(),
                           ": parameter middle got its gradient twice in one backward: "
                           "recomputation needs Options::static_graph"));
    // Training goes on with the same graph without recomputation.
    ddp.zero_grad();
    CheckpointedImpl reference;
    ddp(Share(Batch(8, 4, 1), group), false, false).backward();
    reference.forward(Batch(8, 4, 1), false, false).backward();
    ExpectClose(Gradients(ddp.parameters()), Gradients(reference.parameters()));
  });
}

TEST(StaticGraph, AParameterUsedLaterThanTheFirstStepIsNamed) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, Static());
    ddp(Batch(8, 4, 0), Used{0, 1}).mean().backward();
    const auto loss = ddp(Batch(8, 4, 1), Used{0, 1, 2}).mean();
    EXPECT_EQ(Thrown([&] { loss.backward(); }).message(),
              absl::StrCat("rank ", group.rank(),
                           ": parameter branch2 got 1 gradients in this backward and 0 in the "
                           "first: the graph is not static"));
  });
}

TEST(StaticGraph, AParameterNoLongerUsedIsNamedAtTheNextForward) {
  OnRanks(2, [](ProcessGroup& group) {
    auto ddp = Wrapped(Branches(3), group, Static());
    ddp(Batch(8, 4, 0), Used{0, 1, 2}).mean().backward();
    ddp(Batch(8, 4, 1), Used{0, 2}).mean().backward();
    EXPECT_THAT(Thrown([&] {
                  ddp(Batch(8, 4, 2), Used{0, 2});
                }).message(),
                HasSubstr("1 of 3 parameters got no gradient in the last backward, so it was not averaged: branch1"));
  });
}

TEST(StaticGraph, TheFirstStepMayComeAfterOnesThatOnlyAccumulate) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const bool view : {false, true}) {
      auto ddp = Wrapped(Branches(3), group, Static(view));
      Branches reference(3);
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        reference->zero_grad();
        {
          const NoSync no_sync(ddp);
          ddp(Share(Batch(8, 4, step), group), Used{0, 2}).mean().backward();
        }
        ddp(Share(Batch(8, 4, step + 9), group), Used{0, 2}).mean().backward();
        reference(Batch(8, 4, step), Used{0, 2}).mean().backward();
        reference(Batch(8, 4, step + 9), Used{0, 2}).mean().backward();
        ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
      }
    }
  });
}

TEST(StaticGraph, WithFindUnusedParametersTooItIsStatic) {
  Options options = Static();
  options.find_unused_parameters = true;
  ExpectTrainsAsOneProcess(2, options, /*set_to_none=*/true, [](int rank, int) { return Used{rank, 3}; });
}

}  // namespace
}  // namespace lockstep::ddp
