// The C++ side of scheduler_peer_test.py: scheduler_program FROM TO
//
// FROM is a list of {"name", "optimizer": its type, "schedule": {"type", its options...}, "values": what each step gets,
// "lrs", "steps", "checkpoint"}, the checkpoint being what Python's ImageNet example saves, {"epoch", "arch",
// "state_dict", "best_acc1", "optimizer", "scheduler"}, the last two None to begin anew. Trains each for its steps and
// saves {name: {"rates": each step's, and its momenta, "checkpoint"}, ...} to TO.

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/optim/lr_scheduler.h"
#include "lockstep/checkpoint/optim/optimizer.h"

namespace lockstep::checkpoint {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

// Sets options from the dict of a case, which may leave out those that have defaults.
struct Options {
  const Value& given;

  void operator()(const char* key, double& option) const {
    if (given.Find(key)) option = *GetDouble(given, key);
  }
  void operator()(const char* key, int64_t& option) const {
    if (given.Find(key)) option = *GetInt(given, key);
  }
  void operator()(const char* key, std::optional<int64_t>& option) const {
    if (given.Find(key)) option = *GetInt(given, key);
  }
  void operator()(const char* key, bool& option) const {
    if (given.Find(key)) option = *GetBool(given, key);
  }
  void operator()(const char* key, std::string& option) const {
    if (given.Find(key)) option = *GetString(given, key);
  }
  void operator()(const char* key, std::vector<double>& option) const {
    if (given.Find(key)) option.clear();
    for (const Value& item : Items(key)) option.push_back(item.double_value());
  }
  void operator()(const char* key, std::vector<int64_t>& option) const {
    for (const Value& item : Items(key)) option.push_back(item.int_value());
  }

  std::vector<Value> Items(const char* key) const {
    return given.Find(key) ? given.Find(key)->items() : std::vector<Value>();
  }
};

std::function<double(double)> Hyperbola(double slope) {
  return [slope](double x) { return 1 / (1 + slope * x); };
}

template <typename Functions>
Functions OfFunctions(const Options& set) {
  Functions made;
  for (const Value& slope : set.Items("slopes")) made.lr_lambda.push_back(Hyperbola(slope.double_value()));
  return made;
}

OneCycleLR ToOneCycle(const Options& set) {
  OneCycleLR made;
  set("max_lr", made.max_lr);
  set("total_steps", made.total_steps);
  set("epochs", made.epochs);
  set("steps_per_epoch", made.steps_per_epoch);
  set("pct_start", made.pct_start);
  set("anneal_strategy", made.anneal_strategy);
  set("cycle_momentum", made.cycle_momentum);
  set("base_momentum", made.base_momentum);
  set("max_momentum", made.max_momentum);
  set("div_factor", made.div_factor);
  set("final_div_factor", made.final_div_factor);
  set("three_phase", made.three_phase);
  return made;
}

CyclicLR ToCyclic(const Options& set) {
  CyclicLR made;
  set("base_lr", made.base_lr);
  set("max_lr", made.max_lr);
  set("step_size_up", made.step_size_up);
  set("step_size_down", made.step_size_down);
  set("mode", made.mode);
  set("gamma", made.gamma);
  set("scale_mode", made.scale_mode);
  set("cycle_momentum", made.cycle_momentum);
  set("base_momentum", made.base_momentum);
  set("max_momentum", made.max_momentum);
  if (const Value* const slope = set.given.Find("scale_slope")) made.scale_fn = Hyperbola(slope->double_value());
  return made;
}

ReduceLROnPlateau ToPlateau(const Options& set) {
  ReduceLROnPlateau made;
  set("mode", made.mode);
  set("factor", made.factor);
  set("patience", made.patience);
  set("threshold", made.threshold);
  set("threshold_mode", made.threshold_mode);
  set("cooldown", made.cooldown);
  set("min_lr", made.min_lr);
  set("eps", made.eps);
  return made;
}

SWALR ToSwa(const Options& set) {
  SWALR made;
  set("swa_lr", made.swa_lr);
  set("anneal_epochs", made.anneal_epochs);
  set("anneal_strategy", made.anneal_strategy);
  return made;
}

Schedule ToSchedule(const Value& given) {
  const Options set = {given};
  const std::string type = given.Find("type")->string_value();
  const auto number = [&](const char* key) { return *GetDouble(given, key); };
  const auto count = [&](const char* key) { return *GetInt(given, key); };
  if (type == "StepLR") return StepLR{count("step_size"), number("gamma")};
  if (type == "ExponentialLR") return ExponentialLR{number("gamma")};
  if (type == "CosineAnnealingLR") return CosineAnnealingLR{count("T_max"), number("eta_min")};
  if (type == "LinearLR") return LinearLR{number("start_factor"), number("end_factor"), count("total_iters")};
  if (type == "ConstantLR") return ConstantLR{number("factor"), count("total_iters")};
  if (type == "PolynomialLR") return PolynomialLR{count("total_iters"), number("power")};
  if (type == "LambdaLR") return OfFunctions<LambdaLR>(set);
  if (type == "MultiplicativeLR") return OfFunctions<MultiplicativeLR>(set);
  if (type == "CosineAnnealingWarmRestarts")
    return CosineAnnealingWarmRestarts{count("T_0"), count("T_mult"), number("eta_min")};
  if (type == "OneCycleLR") return ToOneCycle(set);
  if (type == "CyclicLR") return ToCyclic(set);
  if (type == "ReduceLROnPlateau") return ToPlateau(set);
  if (type == "SWALR") return ToSwa(set);
  std::vector<Schedule> schedulers;
  for (const Value& one : set.Items("schedulers")) schedulers.push_back(ToSchedule(one));
  if (type == "ChainedScheduler") return ChainedScheduler{schedulers};
  std::vector<int64_t> milestones;
  set("milestones", milestones);
  if (type == "SequentialLR") return SequentialLR{schedulers, milestones};
  return MultiStepLR{milestones, number("gamma")};
}

double MomentumOf(const Optimizer& optimizer, size_t group) {
  const auto& options = optimizer.param_groups()[group].options();
  if (const auto* sgd = dynamic_cast<const torch::optim::SGDOptions*>(&options)) return sgd->momentum();
  if (const auto* rmsprop = dynamic_cast<const torch::optim::RMSpropOptions*>(&options)) return rmsprop->momentum();
  if (const auto* adam = dynamic_cast<const torch::optim::AdamOptions*>(&options)) return std::get<0>(adam->betas());
  if (const auto* adamw = dynamic_cast<const torch::optim::AdamWOptions*>(&options)) return std::get<0>(adamw->betas());
  return 0;
}

Value RatesOf(const Optimizer& optimizer) {
  Value rates = Value::List(), momenta = Value::List();
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    rates.Append(optimizer.param_groups()[i].options().get_lr());
    momenta.Append(MomentumOf(optimizer, i));
  }
  return Value::List({rates, momenta});
}

// One group a parameter.
template <typename Kind, typename KindOptions>
std::unique_ptr<Optimizer> Make(const Value& given, const std::vector<at::Tensor>& parameters, KindOptions options) {
  std::vector<OptimizerParamGroup> groups;
  for (size_t i = 0; i < parameters.size(); ++i) {
    options.lr(given.Find("lrs")->items()[i].double_value());
    groups.emplace_back(std::vector<at::Tensor>{parameters[i]}, std::make_unique<KindOptions>(options));
  }
  return std::make_unique<Kind>(groups, options);
}

std::unique_ptr<Optimizer> MakeOptimizer(const Value& given, const std::vector<at::Tensor>& parameters) {
  const std::string type = given.Find("optimizer")->string_value();
  namespace optim = torch::optim;
  if (type == "SGD") return Make<optim::SGD>(given, parameters, optim::SGDOptions(1).momentum(0.9));
  if (type == "RMSprop") return Make<optim::RMSprop>(given, parameters, optim::RMSpropOptions(1).momentum(0.9));
  if (type == "Adam") return Make<optim::Adam>(given, parameters, optim::AdamOptions(1));
  if (type == "AdamW") return Make<optim::AdamW>(given, parameters, optim::AdamWOptions(1));
  return Make<optim::Adagrad>(given, parameters, optim::AdagradOptions(1));
}

// Gives the rates of each step. A parameter's gradient is itself.
Value Train(std::vector<at::Tensor>& parameters, Optimizer& optimizer, LRScheduler& scheduler,
            const std::vector<Value>& values, int64_t first, int64_t steps) {
  Value rates = Value::List({RatesOf(optimizer)});
  for (int64_t step = 0; step < steps; ++step) {
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = parameter.detach().clone();
    optimizer.step();
    const Value& value = values[first + step];
    value.is_none() ? scheduler.Step() : scheduler.Step(*GetDouble(Value::List({value}), {0}));
    rates.Append(RatesOf(optimizer));
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
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(given, parameters);
  LOCKSTEP_ASSIGN_OR_RETURN(LRScheduler scheduler,
                            LRScheduler::Create(optimizer.get(), ToSchedule(*given.Find("schedule"))));
  if (!checkpoint.Find("scheduler")->is_none()) {
    LOCKSTEP_RETURN_IF_ERROR(LoadOptimizerStateDict(*optimizer, *checkpoint.Find("optimizer")));
    LOCKSTEP_RETURN_IF_ERROR(scheduler.LoadFromOptimizerState(*checkpoint.Find("optimizer")));
    LOCKSTEP_RETURN_IF_ERROR(scheduler.LoadStateDict(*checkpoint.Find("scheduler")));
  }
  const int64_t first = checkpoint.Find("epoch")->int_value(), steps = given.Find("steps")->int_value();
  const Value rates = Train(parameters, *optimizer, scheduler, given.Find("values")->items(), first, steps);
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state, OptimizerStateDict(*optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value extended, scheduler.AddToOptimizerState(state));
  checkpoint.Set("epoch", first + steps);
  checkpoint.Set("state_dict", state_dict);
  checkpoint.Set("optimizer", extended);
  checkpoint.Set("scheduler", scheduler.StateDict());
  return Value::Dict({{"rates", rates}, {"checkpoint", checkpoint}});
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
