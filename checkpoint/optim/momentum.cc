#include "lockstep/checkpoint/optim/momentum.h"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <tuple>

#include "absl/strings/string_view.h"
#include "lockstep/optim/options.h"

namespace lockstep::checkpoint::optim {
namespace {

class Finder final : public lockstep::optim::OptionVisitor {
 public:
  void Visit(const char* key, double& value) override {
    if (absl::string_view(key) == "momentum") found = {&value};
  }
  void Visit(const char* key, std::tuple<double, double>& value) override {
    if (absl::string_view(key) == "betas") found = {&std::get<0>(value), /*is_beta1=*/true};
  }
  Momentum found;
};

}  // namespace

Momentum FindMomentum(torch::optim::OptimizerOptions& options) {
  if (auto* const sgd = dynamic_cast<torch::optim::SGDOptions*>(&options)) return {&sgd->momentum()};
  if (auto* const rmsprop = dynamic_cast<torch::optim::RMSpropOptions*>(&options)) return {&rmsprop->momentum()};
  if (auto* const adam = dynamic_cast<torch::optim::AdamOptions*>(&options))
    return {&std::get<0>(adam->betas()), /*is_beta1=*/true};
  if (auto* const adamw = dynamic_cast<torch::optim::AdamWOptions*>(&options))
    return {&std::get<0>(adamw->betas()), /*is_beta1=*/true};
  Finder finder;
  if (auto* const others = dynamic_cast<lockstep::optim::Options*>(&options)) others->Visit(finder);
  return finder.found;
}

}  // namespace lockstep::checkpoint::optim
