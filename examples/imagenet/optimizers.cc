#include "lockstep/examples/imagenet/optimizers.h"

#include <map>
#include <type_traits>
#include <utility>

#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/adamax.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/asgd.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/nadam.h"
#include "lockstep/optim/radam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/sgd.h"

namespace lockstep::examples::imagenet {
namespace {

using Parameters = std::vector<at::Tensor>;

template <typename T, typename O>
std::unique_ptr<optim::Optimizer> Make(const OptimizerFlags& flags, Parameters parameters) {
  O options(flags.lr);
  options.weight_decay(flags.weight_decay);
  if constexpr (std::is_same_v<T, optim::SGD> || std::is_same_v<T, optim::LARS> || std::is_same_v<T, optim::RMSprop>)
    options.momentum(flags.momentum);
  return std::make_unique<T>(std::move(parameters), options);
}

using Maker = std::unique_ptr<optim::Optimizer> (*)(const OptimizerFlags&, Parameters);

const std::map<std::string, Maker>& Makers() {
  static const auto* const makers = new std::map<std::string, Maker>{
      {"adadelta", Make<optim::Adadelta, optim::AdadeltaOptions>},
      {"adafactor", Make<optim::Adafactor, optim::AdafactorOptions>},
      {"adagrad", Make<optim::Adagrad, optim::AdagradOptions>},
      {"adam", Make<optim::Adam, optim::AdamOptions>},
      {"adamax", Make<optim::Adamax, optim::AdamaxOptions>},
      {"adamw", Make<optim::AdamW, optim::AdamWOptions>},
      {"asgd", Make<optim::ASGD, optim::ASGDOptions>},
      {"lamb", Make<optim::LAMB, optim::LAMBOptions>},
      {"lars", Make<optim::LARS, optim::LARSOptions>},
      {"nadam", Make<optim::NAdam, optim::NAdamOptions>},
      {"radam", Make<optim::RAdam, optim::RAdamOptions>},
      {"rmsprop", Make<optim::RMSprop, optim::RMSpropOptions>},
      {"sgd", Make<optim::SGD, optim::SGDOptions>},
  };
  return *makers;
}

}  // namespace

std::vector<std::string> OptimizerNames() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : Makers()) names.push_back(name);
  return names;
}

std::unique_ptr<optim::Optimizer> MakeOptimizer(const std::string& name, const OptimizerFlags& flags,
                                                Parameters parameters) {
  return Makers().at(name)(flags, std::move(parameters));
}

}  // namespace lockstep::examples::imagenet
