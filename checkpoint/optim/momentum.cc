#include "lockstep/checkpoint/optim/momentum.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>

namespace lockstep::checkpoint::optim {

Momentum FindMomentum(torch::optim::OptimizerOptions& options) {
  if (auto* const sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) return {&sgd->momentum()};
  if (auto* const rmsprop = dynamic_cast<torch::optim::RMSpropOptions*>(&options)) return {&rmsprop->momentum()};
  if (auto* const adam = dynamic_cast<torch::optim::AdamOptions*>(&options))
    return {&std::get<0>(adam->betas()), /*is_beta1=*/true};
  if (auto* const adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options))
    return {&std::get<0>(adamw->betas()), /*is_beta1=*/true};
  return {};
}

}  // namespace lockstep::checkpoint::optim
