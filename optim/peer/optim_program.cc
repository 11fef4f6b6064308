// The C++ side of optim_peer_test.py: optim_program FROM TO
//
// FROM is {"trainings": [{"name", "kind", "groups", "parameters", "gradients", "optimizer"}, ...]}. Makes for each an
// optimizer of `kind`, loads the state "optimizer", takes a step for each list of gradients, and saves {name:
// {"parameters", "optimizer"}, ...} to TO. A gradient may be None, or {"indices", "values", "size"} if it is sparse.
// LBFGS gets targets in place of gradients.

#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/optim/adadelta.h"
#include "lockstep/optim/adafactor.h"
#include "lockstep/optim/adagrad.h"
#include "lockstep/optim/adam.h"
#include "lockstep/optim/adamax.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/asgd.h"
#include "lockstep/optim/lamb.h"
#include "lockstep/optim/lars.h"
#include "lockstep/optim/lbfgs.h"
#include "lockstep/optim/muon.h"
#include "lockstep/optim/nadam.h"
#include "lockstep/optim/radam.h"
#include "lockstep/optim/rmsprop.h"
#include "lockstep/optim/rprop.h"
#include "lockstep/optim/sgd.h"
#include "lockstep/optim/sparse_adam.h"

namespace lockstep::optim {
namespace {

using checkpoint::GetItems;
using checkpoint::GetString;
using checkpoint::Value;
using torch::optim::OptimizerParamGroup;
using Groups = std::vector<OptimizerParamGroup>;

template <typename T>
std::unique_ptr<torch::optim::Optimizer> Make(const Groups& groups) {
  return std::make_unique<T>(groups);
}

// Every option comes from the loaded state.
const std::map<std::string, std::unique_ptr<torch::optim::Optimizer> (*)(const Groups&)> kKinds = {
    {"Adam", Make<Adam>},
    {"AdamW", Make<AdamW>},
    {"SGD", Make<SGD>},
    {"LARS", Make<LARS>},
    {"LAMB", Make<LAMB>},
    {"Muon", Make<Muon>},
    {"Rprop", Make<Rprop>},
    {"ASGD", Make<ASGD>},
    {"RAdam", Make<RAdam>},
    {"NAdam", Make<NAdam>},
    {"Adadelta", Make<Adadelta>},
    {"Adamax", Make<Adamax>},
    {"RMSprop", Make<RMSprop>},
    {"Adagrad", Make<Adagrad>},
    {"Adafactor", Make<Adafactor>},
    {"SparseAdam", Make<SparseAdam>},
    {"LBFGS", Make<LBFGS>},
};

at::Tensor Gradient(const Value& value) {
  if (value.is_none()) return {};
  if (value.is_tensor()) return value.tensor();
  std::vector<int64_t> size;
  for (const Value& length : value.Find("size")->items()) size.push_back(length.int_value());
  return at::sparse_coo_tensor(value.Find("indices")->tensor(), value.Find("values")->tensor(), size);
}

void Step(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, const Value& gradients) {
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = Gradient(gradients.items()[i]);
  optimizer.step();
}

// Finds a minimum of the sum of d^2 + log(1 + d^2) over all distances d of parameters from their targets, which may be None.
void Minimize(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters, const Value& targets) {
  optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor loss = at::zeros({});
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (targets.items()[i].is_none()) continue;
      at::Tensor distance = parameters[i] - targets.items()[i].tensor();
      if (distance.is_complex()) distance = at::view_as_real(distance);
      const at::Tensor square = distance * distance;
      loss = loss + square.sum() + (square + 1).log().sum();
    }
    loss.backward();
    return loss;
  });
}

absl::StatusOr<Value> Train(const Value& training) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string kind, GetString(training, "kind"));
  std::vector<at::Tensor> parameters;
  for (const Value& given : training.Find("parameters")->items())
    parameters.push_back(given.tensor().detach().set_requires_grad(true));
  Groups groups;
  for (const Value& members : training.Find("groups")->items()) {
    groups.emplace_back(std::vector<at::Tensor>());
    for (const Value& member : members.items()) groups.back().params().push_back(parameters[member.int_value()]);
  }
  const auto optimizer = kKinds.at(kind)(groups);
  LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(*optimizer, *training.Find("optimizer")));
  for (const Value& gradients : training.Find("gradients")->items()) {
    (kind == "LBFGS" ? Minimize : Step)(*optimizer, parameters, gradients);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Value trained, checkpoint::OptimizerStateDict(*optimizer));
  Value tensors = Value::List();
  for (const at::Tensor& parameter : parameters) tensors.Append(parameter.detach());
  return Value::Dict({{"parameters", tensors}, {"optimizer", trained}});
}

absl::Status Run(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, checkpoint::Load(from));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> trainings, GetItems(file, "trainings"));
  Value results = Value::Dict();
  for (const Value& training : trainings) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, GetString(training, "name"));
    absl::StatusOr<Value> result;
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus(name, [&] { result = Train(training); }));
    LOCKSTEP_RETURN_IF_ERROR(Annotate(result.status(), name));
    results.Set(name, *result);
  }
  return checkpoint::Save(to, results);
}

}  // namespace
}  // namespace lockstep::optim

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = lockstep::optim::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
