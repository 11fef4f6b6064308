// The C++ side of scheduler_peer_test.py: scheduler_program FROM TO
//
// FROM is a list of {"name", "schedulers": [{"type", its options...}, ...], "milestones": [...] or None, "lrs",
// "epochs", "checkpoint"}, the checkpoint being what Python's ImageNet example saves, {"epoch", "arch", "state_dict",
// "best_acc1", "optimizer", "scheduler"}, the last two None to begin anew. Trains each for its epochs and saves {name:
// {"lrs": each epoch's, "checkpoint"}, ...} to TO.

#include <torch/optim/sgd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/lr_scheduler.h"
#include "lockstep/checkpoint/optim/optimizer.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;

Schedule ToSchedule(const Value& given) {
  const std::string type = given.Find("type")->string_value();
  const auto number = [&](const char* key) { return *GetDouble(given, key); };
  const auto count = [&](const char* key) { return *GetInt(given, key); };
  if (type == "StepLR") return StepLR{count("step_size"), number("gamma")};
  if (type == "ExponentialLR") return ExponentialLR{number("gamma")};
  if (type == "CosineAnnealingLR") return CosineAnnealingLR{count("T_max"), number("eta_min")};
  if (type == "LinearLR") return LinearLR{number("start_factor"), number("end_factor"), count("total_iters")};
  if (type == "ConstantLR") return ConstantLR{number("factor"), count("total_iters")};
  MultiStepLR steps{{}, number("gamma")};
  for (const Value& milestone : given.Find("milestones")->items()) steps.milestones.push_back(milestone.int_value());
  return steps;
}

absl::StatusOr<LRScheduler> MakeScheduler(const Value& given, SGD& sgd) {
  SequentialLR sequence;
  for (const Value& one : given.Find("schedulers")->items()) sequence.schedulers.push_back(ToSchedule(one));
  if (given.Find("milestones")->is_none()) return LRScheduler::Create(&sgd, sequence.schedulers[0]);
  for (const Value& one : given.Find("milestones")->items()) sequence.milestones.push_back(one.int_value());
  return LRScheduler::Create(&sgd, sequence);
}

Value RatesOf(const LRScheduler& scheduler) {
  return Value::List({scheduler.GetLastLr().begin(), scheduler.GetLastLr().end()});
}

// One group a parameter.
SGD MakeOptimizer(const Value& given, const std::vector<at::Tensor>& parameters) {
  std::vector<OptimizerParamGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double lr = given.Find("lrs")->items()[i].double_value();
    groups.emplace_back(std::vector<at::Tensor>{parameters[i]},
                        std::make_unique<SGDOptions>(SGDOptions(lr).momentum(0.9)));
  }
  return SGD(groups, SGDOptions(1));
}

// Gives the rates of each epoch. A parameter's gradient is itself.
Value Train(std::vector<at::Tensor>& parameters, SGD& sgd, LRScheduler& scheduler, int64_t epochs) {
  Value rates = Value::List({RatesOf(scheduler)});
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = parameter.detach().clone();
    sgd.step();
    scheduler.Step();
    rates.Append(RatesOf(scheduler));
  }
  return rates;
}

absl::StatusOr<Value> Continue(const Value& given) {
  Value checkpoint = *given.Find("checkpoint");
  Value state_dict = Value::Dict();
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : checkpoint.Find("state_dict")->entries()) {
    parameters.push_back(tensor.tensor().detach().clone().set_requires_grad(true));
    state_dict.Set(name, parameters.back().detach());
  }
  SGD sgd = MakeOptimizer(given, parameters);
  LOCKSTEP_ASSIGN_OR_RETURN(LRScheduler scheduler, MakeScheduler(given, sgd));
  if (!checkpoint.Find("scheduler")->is_none()) {
    LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(sgd, *checkpoint.Find("optimizer")));
    LOCKSTEP_RETURN_IF_ERROR(scheduler.LoadStateDict(*checkpoint.Find("scheduler")));
  }
  const int64_t epochs = given.Find("epochs")->int_value();
  const Value rates = Train(parameters, sgd, scheduler, epochs);
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, OptimizerStateDict(sgd));
  checkpoint.Set("epoch", checkpoint.Find("epoch")->int_value() + epochs);
  checkpoint.Set("state_dict", state_dict);
  checkpoint.Set("optimizer", optimizer);
  checkpoint.Set("scheduler", scheduler.StateDict());
  return Value::Dict({{"lrs", rates}, {"checkpoint", checkpoint}});
}

absl::Status Run(const std::string& from, const std::string& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value cases, Load(from));
  Value results = Value::Dict();
  for (const Value& given : cases.items()) {
    const absl::StatusOr<Value> result = Continue(given);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(result.status(), given.Find("name")->string_value()));
    results.Set(*given.Find("name"), *result);
  }
  return Save(to, results);
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  // A case of any other form throws std::bad_variant_access.
  absl::Status status;
  status.Update(lockstep::TorchStatus("the cases", [&] { status = lockstep::checkpoint::Run(argv[1], argv[2]); }));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
