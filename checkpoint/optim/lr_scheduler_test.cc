#include "lockstep/checkpoint/optim/lr_scheduler.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/optim/adamw.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;
using torch::optim::SGDOptions;

// Two groups with the rates of testdata/make_lr_scheduler_golden.py.
std::unique_ptr<SGD> MakeOptimizer() {
  std::vector<OptimizerParamGroup> groups;
  for (const double lr : {0.1, 0.0123})
    groups.emplace_back(std::vector<at::Tensor>{at::zeros({1})}, std::make_unique<SGDOptions>(lr));
  return std::make_unique<SGD>(groups, SGDOptions(1));
}

LRScheduler Make(Optimizer& optimizer, const Schedule& schedule) {
  auto scheduler = LRScheduler::Create(&optimizer, schedule);
  EXPECT_TRUE(scheduler.ok()) << scheduler.status();
  return *std::move(scheduler);
}

std::vector<double> Rates(SGD& optimizer) {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

const SequentialLR kWarmUp{{LinearLR{0.01, 1, 5}, CosineAnnealingLR{55, 0.0007}}, {5}};

double Hyperbola(int64_t epoch) { return 1.0 / (1.0 + epoch); }

// The schedules of the script, by their names there.
std::map<std::string, Schedule> GoldenSchedules() {
  CyclicLR cyclic{{0.01, 0.02}, {0.7, 0.9}, 7, 5, "exp_range", 0.99};
  ReduceLROnPlateau plateau{"max", 0.3, 4};
  plateau.cooldown = 2;
  plateau.min_lr = {0.001, 0.002};
  return {{"StepLR", StepLR{7, 0.3}},
          {"MultiStepLR", MultiStepLR{{30, 10, 30, 45}, 0.2}},
          {"ExponentialLR", ExponentialLR{0.93}},
          {"CosineAnnealingLR", CosineAnnealingLR{13, 0.001}},
          {"LinearLR", LinearLR{0.01, 0.9, 23}},
          {"ConstantLR", ConstantLR{0.3, 9}},
          {"warm-up", kWarmUp},
          {"four", SequentialLR{{ConstantLR{0.1, 3}, MultiStepLR{{0, 4, 8}, 0.3}, StepLR{5, 0.7}, ExponentialLR{0.9}},
                                {3, 20, 40}}},
          {"PolynomialLR", PolynomialLR{31, 1.7}},
          {"LambdaLR", LambdaLR{{Hyperbola}}},
          {"MultiplicativeLR", MultiplicativeLR{{Hyperbola}}},
          {"CosineAnnealingWarmRestarts", CosineAnnealingWarmRestarts{7, 2, 0.001}},
          {"OneCycleLR", OneCycleLR{{0.7, 0.9}, 61}},
          {"CyclicLR", cyclic},
          {"SWALR", SWALR{{0.05, 0.07}, 23}},
          {"ReduceLROnPlateau", plateau},
          {"chain", ChainedScheduler{{LinearLR{0.01, 1, 5}, ExponentialLR{0.9}}}}};
}

// ReduceLROnPlateau's metric is the script's.
void Step(LRScheduler& scheduler, const Schedule& schedule, int64_t epoch) {
  if (!std::holds_alternative<ReduceLROnPlateau>(schedule)) return scheduler.Step();
  scheduler.Step(static_cast<double>(epoch % 9));
}

Value AsList(const std::vector<double>& rates) { return Value::List({rates.begin(), rates.end()}); }

TEST(LRScheduler, IsPythonsToTheBit) {
  const Value golden = *Load("checkpoint/testdata/lr_scheduler.pt");
  ASSERT_EQ(golden.size(), GoldenSchedules().size());
  for (const auto& [name, schedule] : GoldenSchedules()) {
    const auto optimizer = MakeOptimizer();
    LRScheduler scheduler = Make(*optimizer, schedule);
    const std::vector<Value> lrs = *GetItems(golden, {name, "lrs"});
    ASSERT_EQ(lrs.size(), 61);
    for (size_t epoch = 0; epoch < lrs.size(); ++epoch) {
      if (epoch > 0) Step(scheduler, schedule, static_cast<int64_t>(epoch));
      EXPECT_TRUE(Identical(AsList(scheduler.GetLastLr()), lrs[epoch])) << name << " at epoch " << epoch;
      EXPECT_TRUE(Identical(AsList(Rates(*optimizer)), lrs[epoch])) << name << " at epoch " << epoch;
    }
    EXPECT_TRUE(Identical(scheduler.StateDict(), *Get(golden, {name, "state"}))) << name;
  }
}

TEST(LRScheduler, ContinuesAfterAnyEpoch) {
  for (const auto& [name, schedule] : GoldenSchedules()) {
    for (const int before : {0, 2, 5, 20, 41}) {
      const auto whole_optimizer = MakeOptimizer(), optimizer = MakeOptimizer();
      LRScheduler whole = Make(*whole_optimizer, schedule), resumed = Make(*optimizer, schedule);
      for (int i = 0; i < before; ++i) Step(whole, schedule, i);
      for (size_t i = 0; i < 2; ++i) optimizer->param_groups()[i].options().set_lr(Rates(*whole_optimizer)[i]);
      ASSERT_EQ(resumed.LoadStateDict(whole.StateDict()), absl::OkStatus());
      EXPECT_EQ(resumed.GetLastLr(), whole.GetLastLr());
      for (int i = 0; i < 20; ++i) {
        Step(whole, schedule, i);
        Step(resumed, schedule, i);
      }
      EXPECT_EQ(Rates(*optimizer), Rates(*whole_optimizer)) << name << " after " << before;
      EXPECT_TRUE(Identical(resumed.StateDict(), whole.StateDict())) << name << " after " << before;
    }
  }
}

TEST(LRScheduler, LoadingTakesTheOptionsToo) {
  const auto optimizer = MakeOptimizer(), other_optimizer = MakeOptimizer();
  const LRScheduler scheduler = Make(*optimizer, StepLR{7, 0.3});
  LRScheduler other = Make(*other_optimizer, StepLR{1, 0.9});
  ASSERT_EQ(other.LoadStateDict(scheduler.StateDict()), absl::OkStatus());
  EXPECT_TRUE(Identical(other.StateDict(), scheduler.StateDict()));
}

TEST(LRScheduler, LoadingLeavesTheOptimizersRates) {
  const auto optimizer = MakeOptimizer();
  LRScheduler scheduler = Make(*optimizer, ExponentialLR{0.5});
  const Value state = scheduler.StateDict();
  scheduler.Step();
  ASSERT_EQ(scheduler.LoadStateDict(state), absl::OkStatus());
  EXPECT_THAT(Rates(*optimizer), ElementsAre(0.05, 0.00615));
}

TEST(LRScheduler, DrivesEveryOptimizer) {
  const std::vector<at::Tensor> parameters = {at::zeros({1})};
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(0.5));
  torch::optim::Adagrad adagrad(parameters, torch::optim::AdagradOptions(0.5));
  for (Optimizer* optimizer : std::vector<Optimizer*>{&adam, &adagrad}) {
    auto scheduler = LRScheduler::Create(optimizer, ExponentialLR{0.5});
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler->Step();
    EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), 0.25);
  }
}

TEST(LRScheduler, GroupsAddedLaterKeepTheirRate) {
  const auto optimizer = MakeOptimizer();
  LRScheduler scheduler = Make(*optimizer, ExponentialLR{0.5});
  optimizer->add_param_group(OptimizerParamGroup({at::zeros({1})}, std::make_unique<SGDOptions>(7)));
  scheduler.Step();
  EXPECT_THAT(Rates(*optimizer), ElementsAre(0.05, 0.00615, 7));
}

std::string CreateError(const Schedule& schedule) {
  const auto optimizer = MakeOptimizer();
  const absl::Status status = LRScheduler::Create(optimizer.get(), schedule).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Rates(*optimizer), ElementsAre(0.1, 0.0123));
  return std::string(status.message());
}

TEST(LRScheduler, RefusesOptionsByNameAndValue) {
  EXPECT_EQ(CreateError(StepLR{0}), "step_size is 0, expected at least 1");
  EXPECT_EQ(CreateError(StepLR{3, std::numeric_limits<double>::infinity()}), "gamma is inf, expected a finite number");
  EXPECT_EQ(CreateError(CosineAnnealingLR{-2}), "T_max is -2, expected at least 1");
  EXPECT_EQ(CreateError(LinearLR{0, 1, 5}), "start_factor is 0, expected more than 0 and at most 1");
  EXPECT_EQ(CreateError(LinearLR{0.1, 1.5, 5}), "end_factor is 1.5, expected 0 to 1");
  EXPECT_EQ(CreateError(LinearLR{0.1, 1, 0}), "total_iters is 0, expected at least 1");
  EXPECT_EQ(CreateError(ConstantLR{2}), "factor is 2, expected more than 0 and at most 1");
}

TEST(LRScheduler, RefusesOptionsOfCyclesByNameAndValue) {
  EXPECT_EQ(CreateError(PolynomialLR{5, -1}), "power is -1, expected 0 or more");
  EXPECT_EQ(CreateError(LambdaLR{}), "lr_lambda has 0 elements, expected 1, or one for each of the 2 groups");
  EXPECT_EQ(CreateError(LambdaLR{{nullptr}}), "lr_lambda has an element without a function");
  EXPECT_EQ(CreateError(CosineAnnealingWarmRestarts{0}), "T_0 is 0, expected at least 1");
  EXPECT_EQ(CreateError(CosineAnnealingWarmRestarts{5, 0}), "T_mult is 0, expected at least 1");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1}}), "expected total_steps, or epochs and steps_per_epoch");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1}, 0}), "total_steps is 0, expected at least 1");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1}, {}, 3, 0}), "steps_per_epoch is 0, expected at least 1");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1, 0.2, 0.3}, 9}),
            "max_lr has 3 elements, expected 1, or one for each of the 2 groups");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1}, 9, {}, {}, 1.5}), "pct_start is 1.5, expected 0 to 1");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1}, 4, {}, {}, 0.25}), "pct_start is 0.25: the phase of step 0 has no length");
  EXPECT_EQ(CreateError(OneCycleLR{{0.1}, 9, {}, {}, 0.3, "sin"}),
            "anneal_strategy is \"sin\", expected cos or linear");
  EXPECT_EQ(CreateError(CyclicLR{{0.1}, {0.2}, 0}), "step_size_up is 0, expected at least 1");
  EXPECT_EQ(CreateError(CyclicLR{{0.1}, {0.2}, 3, {}, "square"}),
            "mode is \"square\", expected triangular or triangular2 or exp_range");
  EXPECT_EQ(CreateError(SWALR{{0.1}, -1}), "anneal_epochs is -1, expected at least 0");
  EXPECT_EQ(CreateError(ReduceLROnPlateau{"min", 1}), "factor is 1, expected less than 1");
  EXPECT_EQ(CreateError(ReduceLROnPlateau{"least"}), "mode is \"least\", expected min or max");
}

TEST(LRScheduler, RefusesToCycleAMomentumThatIsNotThere) {
  torch::optim::Adagrad adagrad({at::zeros({1})}, torch::optim::AdagradOptions(0.5));
  EXPECT_EQ(LRScheduler::Create(&adagrad, OneCycleLR{{0.1}, 9}).status().message(),
            "cycle_momentum is true, expected false: the optimizer has no momentum and no beta1");
}

template <typename Adam, typename Options>
void ExpectOneCycleCyclesBeta1() {
  Adam adam({at::zeros({1})}, Options(0.5));
  LRScheduler scheduler = Make(adam, OneCycleLR{{0.1}, 10});
  const auto beta1 = [&] { return std::get<0>(static_cast<Options&>(adam.param_groups()[0].options()).betas()); };
  EXPECT_EQ(beta1(), 0.95);
  for (int i = 0; i < 2; ++i) scheduler.Step();
  EXPECT_DOUBLE_EQ(beta1(), 0.85);  // where the rate is highest
  EXPECT_DOUBLE_EQ(scheduler.GetLastLr()[0], 0.1);
}

TEST(LRScheduler, OneCycleCyclesTheFirstBetaOfAdam) {
  ExpectOneCycleCyclesBeta1<torch::optim::Adam, torch::optim::AdamOptions>();
  ExpectOneCycleCyclesBeta1<lockstep::optim::AdamW, lockstep::optim::AdamWOptions>();
}

std::string StepError(const std::function<void()>& step) { return std::string(TorchStatus("", step).message()); }

TEST(LRScheduler, StepsThatAScheduleDoesNotHaveThrowAndChangeNothing) {
  const auto optimizer = MakeOptimizer(), other = MakeOptimizer();
  LRScheduler one_cycle = Make(*optimizer, OneCycleLR{{0.1}, 2}), plateau = Make(*other, ReduceLROnPlateau{});
  for (int i = 0; i < 2; ++i) one_cycle.Step();
  const Value before = one_cycle.StateDict();
  EXPECT_EQ(StepError([&] { one_cycle.Step(); }), "step 3 of 2");
  EXPECT_EQ(StepError([&] { one_cycle.Step(0.5); }), "epoch is 0.5, expected a whole number from 0 on");
  EXPECT_TRUE(Identical(one_cycle.StateDict(), before));
  EXPECT_EQ(StepError([&] { plateau.Step(); }), "ReduceLROnPlateau: expected Step(metric), found Step()");
  EXPECT_EQ(StepError([&] { Make(*other, kWarmUp).Step(3); }),
            "expected Step(): schedulers in a scheduler take no epoch");
}

TEST(LRScheduler, AWarmRestartTakesFractionsOfEpochs) {
  const auto optimizer = MakeOptimizer();
  LRScheduler scheduler = Make(*optimizer, CosineAnnealingWarmRestarts{10});
  scheduler.Step(12.5);  // a quarter of the second time
  EXPECT_NEAR(scheduler.GetLastLr()[0], 0.1 * (1 + std::sqrt(0.5)) / 2, 1e-15);
}

TEST(LRScheduler, NumbersOfTheGroupsTravelInTheOptimizersState) {
  const auto optimizer = MakeOptimizer(), other = MakeOptimizer();
  const LRScheduler saved = Make(*optimizer, SWALR{{0.05}, 4});
  const Value groups = Value::List({Value::Dict({{"lr", 0.1}, {"params", Value::List({0})}}), Value::Dict()});
  const absl::StatusOr<Value> state = saved.AddToOptimizerState(Value::Dict({{"param_groups", groups}}));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(
      Identical(*Get(*state, {"param_groups", 0}),
                Value::Dict({{"lr", 0.1}, {"swa_lr", 0.05}, {"initial_lr", 0.1}, {"params", Value::List({0})}})));
  LRScheduler resumed = Make(*other, SWALR{{0.9}, 4});
  ASSERT_EQ(resumed.LoadFromOptimizerState(*state), absl::OkStatus());
  for (int i = 0; i < 4; ++i) resumed.Step();
  EXPECT_THAT(resumed.GetLastLr(), ElementsAre(0.05, 0.05));
  EXPECT_EQ(saved.AddToOptimizerState(Value::Dict({{"param_groups", Value::List()}})).status().message(),
            "[\"param_groups\"]: 0 groups, the optimizer has 2");
}

TEST(LRScheduler, RefusesSequencesThatAreNone) {
  EXPECT_EQ(CreateError(SequentialLR{{}, {}}), "no schedulers");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{1}}, {}}),
            "milestones are [], expected one less than the 2 schedulers");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{1}, StepLR{1}}, {9, 5}}),
            "milestones are [9, 5], expected to ascend from 1 on");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{1}}, {0}}), "milestones are [0], expected to ascend from 1 on");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{-1}}, {3}}), "step_size is -1, expected at least 1");
  EXPECT_EQ(CreateError(ChainedScheduler{{StepLR{1}, ReduceLROnPlateau{}}}),
            "schedulers have a ReduceLROnPlateau, expected schedules that need no metric");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, ChainedScheduler{{StepLR{1}}}}, {3}}),
            "a SequentialLR or ChainedScheduler begins at a milestone, expected it first");
}

// The message of loading `state` with `key` set to `to`. Checks that the error changed nothing.
std::string LoadError(LRScheduler& scheduler, Value state, const char* key, const Value& to) {
  const Value before = scheduler.StateDict();
  state.Set(key, to);
  const absl::Status status = scheduler.LoadStateDict(state);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(Identical(scheduler.StateDict(), before));
  return std::string(status.message());
}

TEST(LRScheduler, LoadErrorsNameTheKeyAndChangeNothing) {
  const auto optimizer = MakeOptimizer();
  LRScheduler step = Make(*optimizer, StepLR{7, 0.3}), multi = Make(*optimizer, MultiStepLR{{3}});
  LRScheduler cosine = Make(*optimizer, CosineAnnealingLR{9});
  const auto error = [&](const char* key, const Value& to) { return LoadError(step, step.StateDict(), key, to); };
  EXPECT_EQ(error("step_size", "7"), "[\"step_size\"]: expected int, found str \"7\"");
  EXPECT_EQ(error("step_size", 0), "step_size is 0, expected at least 1");
  EXPECT_EQ(error("last_epoch", std::numeric_limits<int64_t>::max()),
            "[\"last_epoch\"]: expected an epoch, found 9223372036854775807");
  EXPECT_EQ(error("base_lrs", Value::List({0.1})), "[\"base_lrs\"]: 1 rates, the optimizer has 2 groups");
  EXPECT_EQ(error("_last_lr", Value::List({0.1, "x"})), "[\"_last_lr\"]: [1]: expected float, found str \"x\"");
  EXPECT_THAT(LoadError(cosine, step.StateDict(), "gamma", 1), HasSubstr("[\"T_max\"]: no such key; the dict has "));
  EXPECT_EQ(LoadError(multi, multi.StateDict(), "milestones", Value::Dict({{3, 1 << 30}})),
            "[\"milestones\"]: expected epochs and how often each counts, up to 1000");
}

TEST(LRScheduler, LoadErrorsOfASequenceNameTheScheduler) {
  const auto optimizer = MakeOptimizer();
  LRScheduler warm_up = Make(*optimizer, kWarmUp);
  const Value state = warm_up.StateDict();
  const auto error = [&](const char* key, const Value& to) { return LoadError(warm_up, state, key, to); };
  const std::vector<Value> schedulers = *GetItems(state, "_schedulers");
  EXPECT_EQ(error("_schedulers", Value::List({schedulers[0]})),
            "[\"_schedulers\"]: expected a list of 2 schedulers' states, found list of 1");
  EXPECT_THAT(error("_schedulers", Value::List({schedulers[1], schedulers[0]})),
              HasSubstr("[\"_schedulers\"]: [0]: [\"start_factor\"]: no such key"));
  EXPECT_EQ(error("_milestones", Value::List({-5})), "milestones are [-5], expected to ascend from 1 on");
}

TEST(LRScheduler, ARateThatIsNanEndsTheTrainingBeforeAStep) {
  const at::Tensor parameter = at::zeros({1}).set_requires_grad(true);
  lockstep::optim::AdamW optimizer({parameter});
  LRScheduler scheduler = Make(optimizer, LambdaLR{{[](int64_t epoch) { return std::sqrt(1.0 - epoch); }}});
  parameter.mutable_grad() = at::ones({1});
  optimizer.step();
  const at::Tensor before = parameter.detach().clone();
  scheduler.Step();
  scheduler.Step();  // sqrt(-1)
  EXPECT_EQ(TorchStatus("train", [&] { optimizer.step(); }),
            absl::InvalidArgumentError("train: Invalid learning rate: nan"));
  EXPECT_TRUE(parameter.equal(before));
}

}  // namespace
}  // namespace lockstep::checkpoint
