// A wrapper averages the backward passes through what its own forward computed, and leaves all others alone: wrappers
// that share parameters, and backward passes through module().

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/join.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/ddp/testing/headed_nets.h"
#include "lockstep/ddp/testing/training.h"

namespace lockstep::ddp {
namespace {

using comm::ProcessGroup;
using testing::Batch;
using testing::Branches;
using testing::EveryWay;
using testing::ExpectClose;
using testing::ExpectCloseGradients;
using testing::Gradients;
using testing::Mlp;
using testing::OnRanks;
using testing::SeededMlp;
using testing::Share;
using testing::TwoHeads;
using testing::Used;
using testing::Wrapped;
using testing::ZeroGradients;

// Calls body(group, options, trace) on 2 and 3 ranks, for every pair of ways to wrap.
void OnRanksInEveryWay(const std::function<void(ProcessGroup&, const Options&, const Options&)>& body) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](ProcessGroup& group) {
      const std::vector<Options> ways = EveryWay();
      for (size_t a = 0; a < ways.size(); ++a) {
        for (size_t b = 0; b < ways.size(); ++b) {
          SCOPED_TRACE(absl::StrCat("way ", a, " and way ", b, " of ", ranks, " ranks"));
          body(group, ways[a], ways[b]);
        }
      }
    });
  }
}

// The whole batch of a step has six rows.
torch::Tensor Loss(const torch::Tensor& output) { return output.pow(2).mean(); }
torch::Tensor Whole(int step) { return Batch(6, 4, step); }

TEST(SharedParameters, AWrapperThatIsNeverCalledDoesNothing) {
  OnRanksInEveryWay([](ProcessGroup& group, const Options& first, const Options& second) {
    auto net = SeededMlp(1);
    auto reference = SeededMlp(1);
    const auto idle = Wrapped(net, group, first);
    auto ddp = Wrapped(net, group, second);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(/*set_to_none=*/step != 1);
      reference->zero_grad();
      Loss(ddp(Share(Whole(step), group))).backward();
      Loss(reference(Whole(step))).backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

TEST(SharedParameters, WrappersInTurnEachAverageTheirOwnBackward) {
  OnRanksInEveryWay([](ProcessGroup& group, const Options& first, const Options& second) {
    TwoHeads nets, reference;
    auto a = Wrapped(nets.a, group, first);
    auto b = Wrapped(nets.b, group, second);
    for (int step = 0; step < 4; ++step) {
      for (TwoHeads* each : {&nets, &reference}) ZeroGradients(*each, /*set_to_none=*/step != 1);
      Loss(a(Share(Whole(step), group))).backward();
      Loss(reference.a(Whole(step))).backward();
      ExpectCloseGradients(nets, reference);
      Loss(b(Share(Whole(step + 9), group))).backward();
      Loss(reference.b(Whole(step + 9))).backward();
      ExpectCloseGradients(nets, reference);
    }
  });
}

TEST(SharedParameters, OneLossOverBothIsAveragedOnce) {
  OnRanksInEveryWay([](ProcessGroup& group, const Options& first, const Options& second) {
    TwoHeads nets, reference;
    auto a = Wrapped(nets.a, group, first);
    auto b = Wrapped(nets.b, group, second);
    for (int step = 0; step < 4; ++step) {
      for (TwoHeads* each : {&nets, &reference}) ZeroGradients(*each, /*set_to_none=*/step != 1);
      const auto share = Share(Whole(step), group), other = Share(Whole(step + 9), group);
      (Loss(a(share)) + 3 * Loss(b(other))).backward();
      (Loss(reference.a(Whole(step))) + 3 * Loss(reference.b(Whole(step + 9)))).backward();
      ExpectCloseGradients(nets, reference);
    }
  });
}

TEST(SharedParameters, ForwardsTogetherAndBackwardsInEitherOrder) {
  OnRanksInEveryWay([](ProcessGroup& group, const Options& first, const Options& second) {
    auto net = SeededMlp(1);
    auto reference = SeededMlp(1);
    auto a = Wrapped(net, group, first);
    auto b = Wrapped(net, group, second);
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      reference->zero_grad();
      const auto loss_a = Loss(a(Share(Whole(step), group)));
      const auto loss_b = Loss(b(Share(Whole(step + 9), group)));
      (step % 2 == 0 ? loss_a : loss_b).backward();
      (step % 2 == 0 ? loss_b : loss_a).backward();
      Loss(reference(Whole(step))).backward();
      Loss(reference(Whole(step + 9))).backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

TEST(SharedParameters, ANoSyncOfOneLeavesTheOtherAveraging) {
  OnRanksInEveryWay([](ProcessGroup& group, const Options& first, const Options& second) {
    auto net = SeededMlp(1);
    auto reference = SeededMlp(1);
    auto a = Wrapped(net, group, first);
    auto b = Wrapped(net, group, second);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      reference->zero_grad();
      torch::Tensor accumulated;
      {
        const NoSync no_sync(a);
        accumulated = Loss(a(Share(Whole(step), group)));
      }
      // One loss over both: the sum of the ranks' gradients of it is averaged once, by the wrapper outside of NoSync.
      (accumulated + Loss(b(Share(Whole(step + 9), group)))).backward();
      (Loss(reference(Whole(step))) + Loss(reference(Whole(step + 9)))).backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

TEST(SharedParameters, RanksMayDifferInTheParametersThatTheyUse) {
  OnRanks(3, [](ProcessGroup& group) {
    for (const bool skip : {false, true}) {
      Options options;
      options.bucket_cap_mb = 1e-6;
      options.find_unused_parameters = true;
      options.skip_all_reduce_unused_params = skip;
      Branches net(4), reference(4);
      auto a = Wrapped(net, group, options);
      auto b = Wrapped(net, group, options);
      for (int step = 0; step < 4; ++step) {
        net->zero_grad();
        reference->zero_grad();
        const auto used_a = [step](int rank) { return Used{(rank + step) % 4}; };
        const auto used_b = [](int rank) { return Used{rank, 2}; };
        Loss(b(Share(Whole(step), group), used_b(group.rank()))).backward();
        Loss(a(Share(Whole(step), group), used_a(group.rank()))).backward();
        for (int rank = 0; rank < 3; ++rank) {
          const auto share = Share(Whole(step), rank, 3);
          ((Loss(reference(share, used_b(rank))) + Loss(reference(share, used_a(rank)))) / 3).backward();
        }
        ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
      }
    }
  });
}

TEST(SharedParameters, BothMayBeJoined) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      if (options.static_graph) continue;
      auto net = SeededMlp(1);
      auto reference = SeededMlp(1);
      auto a = Wrapped(net, group, options);
      auto b = Wrapped(net, group, options);
      std::vector<torch::Tensor> by_a;
      {
        Join join({a, b});
        for (int step = 0; step < 2 + group.rank(); ++step) {
          net->zero_grad();
          Loss(a(Share(Whole(step), group))).backward();
          by_a = Gradients(net->parameters());
          net->zero_grad();
          Loss(b(Share(Whole(step + 9), group))).backward();
        }
        ThrowIfError(join.Finish());
      }
      if (group.rank() == 0) continue;
      // The last step had inputs on rank 1 alone.
      (Loss(reference(Share(Whole(2), 1, 2))) / 2).backward();
      ExpectClose(by_a, Gradients(reference->parameters()));
      reference->zero_grad();
      (Loss(reference(Share(Whole(11), 1, 2))) / 2).backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

// Reduced in place over shared memory, and while backward goes on.
TEST(SharedParameters, AreRightOverSharedMemoryAndGloo) {
  for (const char* backend : {"shm", "gloo"}) {
    comm::InitOptions init;
    init.backend = backend;
    const auto train = [&](ProcessGroup& group) {
      return TorchStatus("", [&] {
        TwoHeads nets, reference;
        const auto idle = Wrapped(nets.a, group);
        auto a = Wrapped(nets.a, group), b = Wrapped(nets.b, group);
        for (int step = 0; step < 30; ++step) {
          for (TwoHeads* each : {&nets, &reference}) ZeroGradients(*each);
          const auto share = Share(Whole(step), group);
          if (step % 2 == 0) {
            (Loss(a(share)) + Loss(b(share))).backward();
          } else {
            Loss(a(share)).backward();
            Loss(b(share)).backward();
          }
          (Loss(reference.a(Whole(step))) + Loss(reference.b(Whole(step)))).backward();
          ExpectCloseGradients(nets, reference);
        }
      });
    };
    for (const absl::Status& status : comm::testing::InitRanks(init, 3, train)) EXPECT_EQ(status, absl::OkStatus());
  }
}

TEST(SharedParameters, VirtualRanksOfEachWrapperInTurn) {
  OnRanks(2, [](ProcessGroup& group) {
    Options options;
    options.virtual_ranks = 3;
    auto net = SeededMlp(1);
    auto reference = SeededMlp(1);
    auto a = Wrapped(net, group, options), b = Wrapped(net, group, options);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      reference->zero_grad();
      for (const int v : a.VirtualRanks(step)) {
        Loss(net(Whole(50 + v))).backward();  // a probe
        net->zero_grad();
        Loss(a(Share(Whole(step), v, 3))).backward();
      }
      for (const int v : b.VirtualRanks(step)) Loss(b(Share(Whole(step + 9), v, 3))).backward();
      (Loss(reference(Whole(step))) + Loss(reference(Whole(step + 9)))).backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

// Two ranks, of which rank 0 alone runs a backward that no forward of the wrapper announced.
void ExpectProbeStaysLocal(const std::function<void(Mlp& net)>& probe) {
  for (const int ranks : {2, 3}) {
    OnRanks(ranks, [&](ProcessGroup& group) {
      for (const Options& options : EveryWay()) {
        auto net = SeededMlp(1);
        auto reference = SeededMlp(1), alone = SeededMlp(1);
        auto ddp = Wrapped(net, group, options);
        for (int step = 0; step < 3; ++step) {
          if (group.rank() == 0) {
            net->zero_grad();
            alone->zero_grad();
            probe(net);
            probe(alone);
            ExpectClose(Gradients(net->parameters()), Gradients(alone->parameters()));
          }
          net->zero_grad();
          reference->zero_grad();
          const auto loss = Loss(ddp(Share(Whole(step), group)));
          if (group.rank() == 0 && step == 1) {  // also between forward and backward
            probe(net);
            net->zero_grad();
          }
          loss.backward();
          Loss(reference(Whole(step))).backward();
          ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
        }
      }
    });
  }
}

TEST(Module, ABackwardThroughItOnOneRankStaysThere) {
  ExpectProbeStaysLocal([](Mlp& net) { Loss(net(Whole(50))).backward(); });
}

TEST(Module, SeveralBackwardPassesThroughItsGraphStayThere) {
  ExpectProbeStaysLocal([](Mlp& net) {
    const auto loss = Loss(net(Whole(50)));
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(Module, AGradientPenaltyThroughItStaysThere) {
  ExpectProbeStaysLocal([](Mlp& net) {
    const auto x = Whole(50).requires_grad_();
    const auto slope = torch::autograd::grad({net(x).sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    (Loss(slope) + 0 * net->second->bias.sum()).backward();
  });
}

TEST(OwnBackward, ALossMayAlsoUseTheModuleAndItsParametersDirectly) {
  OnRanksInEveryWay([](ProcessGroup& group, const Options& options, const Options& unused) {
    if (unused.bucket_cap_mb != options.bucket_cap_mb) return;
    auto net = SeededMlp(1);
    auto reference = SeededMlp(1);
    auto ddp = Wrapped(net, group, options);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      reference->zero_grad();
      // The bias gets its gradient before the wrapper's output does.
      (net->first->bias.pow(2).sum() + Loss(ddp(Share(Whole(step), group))) + Loss(net(Share(Whole(step), group))))
          .backward();
      (reference->first->bias.pow(2).sum() + 2 * Loss(reference(Whole(step)))).backward();
      ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
    }
  });
}

TEST(OwnBackward, EveryForwardHasOneHoweverManyAreOpen) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      auto reference = SeededMlp(1);
      std::vector<torch::Tensor> losses;
      for (int i = 0; i < 200; ++i) losses.push_back(Loss(ddp(Share(Whole(i), group))));
      for (const int i : {0, 1, 199, 100}) {
        losses[i].backward();
        Loss(reference(Whole(i))).backward();
        ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
      }
    }
  });
}

TEST(OwnBackward, AGradientOfItsOutputAloneStartsNothing) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      auto ddp = Wrapped(SeededMlp(1), group, options);
      auto reference = SeededMlp(1);
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        reference->zero_grad();
        const auto x = Share(Whole(step), group).requires_grad_();
        const auto output = ddp(x);
        // On one rank alone.
        if (group.rank() == 0)
          torch::autograd::grad({output.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/false);
        Loss(output).backward();
        Loss(reference(Whole(step))).backward();
        ExpectClose(Gradients(ddp.parameters()), Gradients(reference->parameters()));
      }
    }
  });
}

// Its result hides its tensors from the wrapper.
struct Hidden {
  struct Output {
    torch::Tensor loss;
  };
};
struct HiddenImpl : torch::nn::Module {
  explicit HiddenImpl(Mlp net) : net(register_module("net", std::move(net))) {}
  Hidden::Output forward(const torch::Tensor& x) { return {Loss(net(x))}; }
  Mlp net;
};

TEST(OwnBackward, IsKnownWithoutTheTensorsOfTheResult) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      if (options.find_unused_parameters || options.static_graph) continue;
      auto net = std::make_shared<HiddenImpl>(SeededMlp(1));
      auto reference = SeededMlp(1), alone = SeededMlp(1);
      auto ddp = Wrapped(net, group, options);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        reference->zero_grad();
        alone->zero_grad();
        const auto first = ddp(Share(Whole(step), group)), second = ddp(Share(Whole(step + 9), group));
        if (group.rank() == 0) {
          Loss(net->net(Whole(50))).backward();
          Loss(alone(Whole(50))).backward();
          ExpectClose(Gradients(net->parameters()), Gradients(alone->parameters()));
          net->zero_grad();
        }
        first.loss.backward();
        second.loss.backward();
        Loss(reference(Whole(step))).backward();
        Loss(reference(Whole(step + 9))).backward();
        ExpectClose(Gradients(net->parameters()), Gradients(reference->parameters()));
      }
    }
  });
}

// Passes the gradient on in a backward within the backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, int64_t part) {
    context->save_for_backward({x});
    context->saved_data["part"] = part;
    const torch::NoGradGuard no_grad;
    return (*parts[part])(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode grad(true);
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    (*parts[context->saved_data["part"].toInt()])(x).backward(gradients[0]);
    return {x.grad(), torch::Tensor()};
  }
  static thread_local std::array<Mlp*, 2> parts;
};
thread_local std::array<Mlp*, 2> Recomputed::parts;

struct TwoPartsImpl : torch::nn::Module {
  TwoPartsImpl()
      : first(register_module("first", testing::Mlp(4, 5, 4))), second(register_module("second", SeededMlp(1))) {
    to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : first->parameters()) parameter.fill_(0.25);
  }
  torch::Tensor forward(const torch::Tensor& x, bool recompute) {
    if (!recompute) return second(first(x));
    Recomputed::parts = {&first, &second};
    return Recomputed::apply(Recomputed::apply(x, 0), 1);
  }
  Mlp first, second;
};

TEST(OwnBackward, PartsMayBeRecomputed) {
  OnRanks(2, [](ProcessGroup& group) {
    for (const Options& options : EveryWay()) {
      if (options.find_unused_parameters) continue;
      auto ddp = Wrapped(std::make_shared<TwoPartsImpl>(), group, options);
      TwoPartsImpl reference;
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        reference.zero_grad();
        Loss(ddp(Share(Whole(step), group).requires_grad_(), true)).backward();
        Loss(reference.forward(Whole(step), false)).backward();
        ExpectClose(Gradients(ddp.parameters()), Gradients(reference.parameters()));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::ddp
