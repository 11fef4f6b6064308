#include "lockstep/checkpoint/optim/lr_scheduler.h"

#include <ATen/ops/zeros.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

template <typename Schedules>
LRScheduler Make(SGD& optimizer, const Schedules& schedule) {
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

using Schedules = std::variant<Schedule, SequentialLR>;

LRScheduler Make(SGD& optimizer, const Schedules& schedule) {
  return std::visit([&](const auto& one) { return Make(optimizer, one); }, schedule);
}

// The schedules of the script, by their names there.
std::map<std::string, Schedules> GoldenSchedules() {
  return {{"StepLR", Schedule(StepLR{7, 0.3})},
          {"MultiStepLR", Schedule(MultiStepLR{{30, 10, 30, 45}, 0.2})},
          {"ExponentialLR", Schedule(ExponentialLR{0.93})},
          {"CosineAnnealingLR", Schedule(CosineAnnealingLR{13, 0.001})},
          {"LinearLR", Schedule(LinearLR{0.01, 0.9, 23})},
          {"ConstantLR", Schedule(ConstantLR{0.3, 9})},
          {"warm-up", kWarmUp},
          {"four", SequentialLR{{ConstantLR{0.1, 3}, MultiStepLR{{0, 4, 8}, 0.3}, StepLR{5, 0.7}, ExponentialLR{0.9}},
                                {3, 20, 40}}}};
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
      if (epoch > 0) scheduler.Step();
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
      for (int i = 0; i < before; ++i) whole.Step();
      for (size_t i = 0; i < 2; ++i) optimizer->param_groups()[i].options().set_lr(Rates(*whole_optimizer)[i]);
      ASSERT_EQ(resumed.LoadStateDict(whole.StateDict()), absl::OkStatus());
      EXPECT_EQ(resumed.GetLastLr(), whole.GetLastLr());
      for (int i = 0; i < 20; ++i) {
        whole.Step();
        resumed.Step();
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
  for (torch::optim::Optimizer* optimizer : std::vector<torch::optim::Optimizer*>{&adam, &adagrad}) {
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

template <typename Schedules>
std::string CreateError(const Schedules& schedule) {
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

TEST(LRScheduler, RefusesSequencesThatAreNone) {
  EXPECT_EQ(CreateError(SequentialLR{{}, {}}), "no schedulers");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{1}}, {}}),
            "milestones are [], expected one less than the 2 schedulers");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{1}, StepLR{1}}, {9, 5}}),
            "milestones are [9, 5], expected to ascend from 1 on");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{1}}, {0}}), "milestones are [0], expected to ascend from 1 on");
  EXPECT_EQ(CreateError(SequentialLR{{StepLR{1}, StepLR{-1}}, {3}}), "step_size is -1, expected at least 1");
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

}  // namespace
}  // namespace lockstep::checkpoint
