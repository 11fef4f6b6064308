// The C++ side of optimizer_peer_test.py: optimizer_program FROM TO
//
// FROM is {"input", "target", "trainings": [{"name", "kind", "steps", "parameters", "optimizer"}, ...]}. Trains each
// for its steps, by a torch::optim optimizer of `kind` that loads the state "optimizer", and saves {name:
// {"parameters", "optimizer"}, ...} to TO.

#include <torch/nn/functional/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/optimizer.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::OptimizerParamGroup;

// Weights and biases in two groups, as in Python. Every option must come from the loaded state.
std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const std::string& kind, const std::vector<at::Tensor>& p) {
  const std::vector<OptimizerParamGroup> groups = {OptimizerParamGroup({p[0], p[2]}),
                                                   OptimizerParamGroup({p[1], p[3]})};
  if (kind == "SGD") return std::make_unique<torch::optim::SGD>(groups, torch::optim::SGDOptions(9));
  if (kind == "Adam") return std::make_unique<torch::optim::Adam>(groups, torch::optim::AdamOptions(9));
  if (kind == "AdamW") return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(9));
  if (kind == "Adagrad") return std::make_unique<torch::optim::Adagrad>(groups, torch::optim::AdagradOptions(9));
  if (kind == "RMSprop") return std::make_unique<torch::optim::RMSprop>(groups, torch::optim::RMSpropOptions(9));
  return std::make_unique<torch::optim::LBFGS>(p, torch::optim::LBFGSOptions(9));
}

void Train(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& p, const Value& file, int64_t steps) {
  const at::Tensor input = file.Find("input")->tensor(), target = file.Find("target")->tensor();
  const auto closure = [&] {
    optimizer.zero_grad();
    const at::Tensor hidden = at::linear(input, p[0], p[1]).tanh();
    const at::Tensor loss = (at::linear(hidden, p[2], p[3]) - target).square().mean();
    loss.backward();
    return loss;
  };
  for (int64_t i = 0; i < steps; ++i) optimizer.step(closure);
}

absl::StatusOr<Value> Continue(const Value& training, const Value& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> given, GetItems(training, "parameters"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string kind, GetString(training, "kind"));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps, GetInt(training, "steps"));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state, GetDict(training, "optimizer"));
  std::vector<at::Tensor> parameters;
  for (const Value& parameter : given)
    parameters.push_back(parameter.tensor().detach().clone().set_requires_grad(true));
  const auto optimizer = MakeOptimizer(kind, parameters);
  LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(*optimizer, state));
  Train(*optimizer, parameters, file, steps);
  LOCKSTEP_ASSIGN_OR_RETURN(const Value trained, OptimizerStateDict(*optimizer));
  Value tensors = Value::List();
  for (const at::Tensor& parameter : parameters) tensors.Append(parameter.detach());
  return Value::Dict({{"parameters", tensors}, {"optimizer", trained}});
}

absl::Status Run(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value file, Load(from));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Value> trainings, GetItems(file, "trainings"));
  Value results = Value::Dict();
  for (const Value& training : trainings) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, GetString(training, "name"));
    const absl::StatusOr<Value> result = Continue(training, file);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(result.status(), name));
    results.Set(name, *result);
  }
  return Save(to, results);
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = lockstep::checkpoint::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
