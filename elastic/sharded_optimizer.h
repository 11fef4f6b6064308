// An optimizer whose state is divided among the ranks of a World, and that outlives them.

#ifndef LOCKSTEP_ELASTIC_SHARDED_OPTIMIZER_H_
#define LOCKSTEP_ELASTIC_SHARDED_OPTIMIZER_H_

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/optim/optimizer.h>

#include <type_traits>

#include "absl/cleanup/cleanup.h"
#include "lockstep/elastic/internal/shard.h"

namespace torch::optim {
class Adagrad;
class LBFGS;
}  // namespace torch::optim

namespace lockstep::elastic {

// A `Base` of which each rank keeps the state of a part of the parameters only: its own share and a copy of other
// ranks' shares, since the state of each parameter is on two ranks. So with n ranks the state takes 2/n of the memory,
// and if one rank dies at a time nothing is lost. Base is torch::optim::SGD, Adam, AdamW, RMSprop, or another optimizer
// that treats each parameter separately and that checkpoint::OptimizerStateDict() supports.
//
//   elastic::ShardedOptimizer<torch::optim::Adam> optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
//   LOCKSTEP_RETURN_IF_ERROR(world->Keep("optimizer", optimizer));
//
// step() steps the parameters of this rank's two shares. World::Commit(), in which it is called, then gives each rank
// the other parameters. Both ranks that have a parameter's state compute the same bits, so the copy costs no message,
// but 2/n of the computing instead of 1/n. After every step the parameters have the bits that a plain `Base` gives for
// the same gradients. Before World::Run() it is a plain `Base`; a whole state may be loaded into it.
//
// This is stage 1 of S. Rajbhandari, J. Rasley, O. Ruwase, Y. He, "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", SC 2020, https://arxiv.org/abs/1910.02054, with the state of each parameter on two ranks.
template <typename Base>
class ShardedOptimizer final : public Base {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, Base>, "Base is a LibTorch optimizer");
  static_assert(!std::is_base_of_v<torch::optim::LBFGS, Base>, "LBFGS steps all parameters as one vector");
  static_assert(!std::is_same_v<Base, torch::optim::Adagrad>, "Adagrad creates all state in its constructor");

 public:
  using Base::Base;

  // Returns the result of `closure`, if there is one. Throws the exceptions of Base, and StatusError: parameters were
  // added after World::Run() was called.
  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const c10::AutoGradMode enable_grad(true);
      loss = closure();
    }
    internal::ParamGroups share = shard_.Of(this->param_groups_);
    this->param_groups_.swap(share);
    const auto restore = absl::MakeCleanup([&] { this->param_groups_.swap(share); });
    Base::step();
    return loss;
  }

 private:
  friend class World;

  internal::Shard shard_;
};

}  // namespace lockstep::elastic

#endif  // LOCKSTEP_ELASTIC_SHARDED_OPTIMIZER_H_
