#include "lockstep/checkpoint/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/fields.h"

namespace lockstep::checkpoint {
namespace optim {

// The state that Python's scheduler objects keep.
struct ScheduleState {
  Schedule schedule;
  std::vector<double> base_lrs;
  int64_t last_epoch = -1;
  int64_t step_count = 0;
  std::vector<double> last_lr;
};

struct SequenceState {
  std::vector<ScheduleState> schedules;
  std::vector<int64_t> milestones;
  int64_t last_epoch = 0;
  std::vector<double> last_lr;
};

}  // namespace optim

namespace {

using optim::Fields;
using optim::ScheduleState;
using optim::SequenceState;
using torch::optim::Optimizer;

constexpr double kPi = 3.14159265358979323846;
// Epochs up to here are exact as a double, and twice as many as an int64_t.
constexpr int64_t kMostEpochs = int64_t{1} << 53;

absl::Status CheckEpochs(const char* name, int64_t epochs) {
  if (epochs >= 1 && epochs <= kMostEpochs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", epochs, ", expected at least 1"));
}

absl::Status CheckFinite(const char* name, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", expected a finite number"));
}

absl::Status CheckFactor(const char* name, double factor, bool may_be_zero = false) {
  if ((factor > 0 && factor <= 1) || (may_be_zero && factor == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", factor, ", expected ", may_be_zero ? "0 to 1" : "more than 0 and at most 1"));
}

// For each schedule: the requirements of its options, their keys, the rate of an epoch from the previous one, and the
// closed form that SequentialLR uses for epoch 0. The order of operations is Python's, on which the last bits depend.

struct Epoch {
  int64_t number;
  bool initial;  // set by the scheduler's construction
};

absl::Status Check(const StepLR& schedule) {
  LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("step_size", schedule.step_size));
  return CheckFinite("gamma", schedule.gamma);
}

void Describe(Fields& fields, StepLR& schedule) {
  fields.Int("step_size", schedule.step_size);
  fields.Double("gamma", schedule.gamma);
}

double Next(const StepLR& schedule, Epoch epoch, double lr, double) {
  return epoch.number == 0 || epoch.number % schedule.step_size != 0 ? lr : lr * schedule.gamma;
}

double AtZero(const StepLR&, double base_lr) { return base_lr; }

absl::Status Check(const MultiStepLR& schedule) { return CheckFinite("gamma", schedule.gamma); }

// {epoch: times}.
Value Counter(const std::vector<int64_t>& milestones) {
  Value counter = Value::Dict({}, Value::DictKind::kCounter);
  for (const int64_t milestone : milestones) {
    const Value* times = counter.Find(milestone);
    counter.Set(milestone, times ? times->int_value() + 1 : 1);
  }
  return counter;
}

absl::Status ReadCounter(const Value& counter, std::vector<int64_t>& milestones) {
  constexpr int64_t kMostTimes = 1000;  // so that a broken file cannot ask for much memory
  if (!counter.is_dict()) return absl::InvalidArgumentError(absl::StrCat("expected dict, found ", counter.type_name()));
  milestones.clear();
  for (const auto& [milestone, times] : counter.entries()) {
    if (!milestone.is_int() || !times.is_int() || times.int_value() < 0 || times.int_value() > kMostTimes)
      return absl::InvalidArgumentError(absl::StrCat("expected epochs and how often each counts, up to ", kMostTimes));
    milestones.insert(milestones.end(), times.int_value(), milestone.int_value());
  }
  return absl::OkStatus();
}

void Describe(Fields& fields, MultiStepLR& schedule) {
  fields.Field("milestones", Counter(schedule.milestones),
               [&](const Value& found) { return ReadCounter(found, schedule.milestones); });
  fields.Double("gamma", schedule.gamma);
}

double Next(const MultiStepLR& schedule, Epoch epoch, double lr, double) {
  const auto times = std::count(schedule.milestones.begin(), schedule.milestones.end(), epoch.number);
  return times == 0 ? lr : lr * std::pow(schedule.gamma, times);
}

double AtZero(const MultiStepLR& schedule, double base_lr) {
  const auto passed = std::count_if(schedule.milestones.begin(), schedule.milestones.end(),
                                    [](int64_t milestone) { return milestone <= 0; });
  return base_lr * std::pow(schedule.gamma, passed);
}

absl::Status Check(const ExponentialLR& schedule) { return CheckFinite("gamma", schedule.gamma); }

void Describe(Fields& fields, ExponentialLR& schedule) { fields.Double("gamma", schedule.gamma); }

double Next(const ExponentialLR& schedule, Epoch epoch, double lr, double) {
  return epoch.initial ? lr : lr * schedule.gamma;
}

double AtZero(const ExponentialLR&, double base_lr) { return base_lr; }

absl::Status Check(const CosineAnnealingLR& schedule) {
  LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("T_max", schedule.T_max));
  return CheckFinite("eta_min", schedule.eta_min);
}

void Describe(Fields& fields, CosineAnnealingLR& schedule) {
  fields.Int("T_max", schedule.T_max);
  fields.Double("eta_min", schedule.eta_min);
}

double Next(const CosineAnnealingLR& schedule, Epoch epoch, double lr, double base_lr) {
  const double t_max = schedule.T_max, eta_min = schedule.eta_min;
  if (epoch.initial) return lr;
  // One epoch past the minimum the quotient below is 0 / 0.
  if ((epoch.number - 1 - schedule.T_max) % (2 * schedule.T_max) == 0)
    return lr + (base_lr - eta_min) * (1 - std::cos(kPi / t_max)) / 2;
  return (1 + std::cos(kPi * epoch.number / t_max)) / (1 + std::cos(kPi * (epoch.number - 1) / t_max)) *
             (lr - eta_min) +
         eta_min;
}

double AtZero(const CosineAnnealingLR& schedule, double base_lr) {
  return schedule.eta_min + (base_lr - schedule.eta_min);
}

absl::Status Check(const LinearLR& schedule) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFactor("start_factor", schedule.start_factor));
  LOCKSTEP_RETURN_IF_ERROR(CheckFactor("end_factor", schedule.end_factor, /*may_be_zero=*/true));
  return CheckEpochs("total_iters", schedule.total_iters);
}

void Describe(Fields& fields, LinearLR& schedule) {
  fields.Double("start_factor", schedule.start_factor);
  fields.Double("end_factor", schedule.end_factor);
  fields.Int("total_iters", schedule.total_iters);
}

double Next(const LinearLR& schedule, Epoch epoch, double lr, double) {
  const double step = schedule.end_factor - schedule.start_factor;
  if (epoch.number == 0) return lr * schedule.start_factor;
  if (epoch.initial || epoch.number > schedule.total_iters) return lr;
  return lr * (1.0 + step / (schedule.total_iters * schedule.start_factor + (epoch.number - 1) * step));
}

double AtZero(const LinearLR& schedule, double base_lr) { return base_lr * schedule.start_factor; }

absl::Status Check(const ConstantLR& schedule) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFactor("factor", schedule.factor));
  return CheckEpochs("total_iters", schedule.total_iters);
}

void Describe(Fields& fields, ConstantLR& schedule) {
  fields.Double("factor", schedule.factor);
  fields.Int("total_iters", schedule.total_iters);
}

double Next(const ConstantLR& schedule, Epoch epoch, double lr, double) {
  if (epoch.number == 0) return lr * schedule.factor;
  return epoch.number == schedule.total_iters ? lr * (1.0 / schedule.factor) : lr;
}

double AtZero(const ConstantLR& schedule, double base_lr) { return base_lr * schedule.factor; }

absl::Status Check(const Schedule& schedule) {
  return std::visit([](const auto& one) { return Check(one); }, schedule);
}

absl::Status CheckSequence(const std::vector<int64_t>& milestones, size_t schedulers) {
  if (schedulers == 0) return absl::InvalidArgumentError("no schedulers");
  const auto error = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("milestones are [", absl::StrJoin(milestones, ", "), "], expected ", expected));
  };
  if (milestones.size() != schedulers - 1) return error(absl::StrCat("one less than the ", schedulers, " schedulers"));
  for (size_t i = 0; i < milestones.size(); ++i) {
    if (milestones[i] <= (i == 0 ? 0 : milestones[i - 1])) return error("to ascend from 1 on");
  }
  return absl::OkStatus();
}

std::vector<double> Rates(const Optimizer& optimizer, size_t groups) {
  std::vector<double> rates;
  for (size_t i = 0; i < groups; ++i) rates.push_back(optimizer.param_groups()[i].options().get_lr());
  return rates;
}

void SetRates(Optimizer& optimizer, const std::vector<double>& rates) {
  for (size_t i = 0; i < rates.size(); ++i) optimizer.param_groups()[i].options().set_lr(rates[i]);
}

void StepOne(Optimizer& optimizer, ScheduleState& state, bool initial = false) {
  ++state.step_count;
  ++state.last_epoch;
  std::vector<double> rates = Rates(optimizer, state.base_lrs.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    rates[i] = std::visit(
        [&](const auto& one) {
          return Next(one, {state.last_epoch, initial}, rates[i], state.base_lrs[i]);
        },
        state.schedule);
  }
  SetRates(optimizer, rates);
  state.last_lr = std::move(rates);
}

// Does what Python's step(0) does, which is not counted as a step.
void StartOver(Optimizer& optimizer, ScheduleState& state) {
  state.last_epoch = 0;
  for (size_t i = 0; i < state.base_lrs.size(); ++i)
    state.last_lr[i] = std::visit([&](const auto& one) { return AtZero(one, state.base_lrs[i]); }, state.schedule);
  SetRates(optimizer, state.last_lr);
}

void Describe(Fields& fields, ScheduleState& state) {
  std::visit([&](auto& one) { Describe(fields, one); }, state.schedule);
  fields.Doubles("base_lrs", state.base_lrs);
  fields.Int("last_epoch", state.last_epoch);
  fields.Int("_step_count", state.step_count);
  fields.WriteOnly("_is_initial", false);
  fields.WriteOnly("_get_lr_called_within_step", false);
  fields.Doubles("_last_lr", state.last_lr);
}

Value ToValue(ScheduleState state) {
  Fields writer;
  Describe(writer, state);
  return writer.dict();
}

absl::Status CheckRates(const char* key, const std::vector<double>& rates, size_t groups) {
  if (rates.size() == groups) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("[\"", key, "\"]: ", rates.size(), " rates, the optimizer has ", groups, " groups"));
}

absl::Status CheckEpoch(int64_t last_epoch) {
  if (last_epoch >= -1 && last_epoch <= kMostEpochs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("[\"last_epoch\"]: expected an epoch, found ", last_epoch));
}

absl::Status FromValue(const Value& value, ScheduleState& state) {
  const size_t groups = state.base_lrs.size();
  Fields reader(value);
  Describe(reader, state);
  LOCKSTEP_RETURN_IF_ERROR(reader.status());
  LOCKSTEP_RETURN_IF_ERROR(Check(state.schedule));
  LOCKSTEP_RETURN_IF_ERROR(CheckEpoch(state.last_epoch));
  LOCKSTEP_RETURN_IF_ERROR(CheckRates("base_lrs", state.base_lrs, groups));
  return CheckRates("_last_lr", state.last_lr, groups);
}

absl::Status ReadSchedules(const Value& found, std::vector<ScheduleState>& schedules) {
  if (!found.is_list() || found.size() != schedules.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a list of ", schedules.size(),
                                                   " schedulers' states, found ", found.type_name(), " of ",
                                                   found.size()));
  }
  for (size_t i = 0; i < schedules.size(); ++i)
    LOCKSTEP_RETURN_IF_ERROR(Annotate(FromValue(found.items()[i], schedules[i]), KeyPath({i}).ToString()));
  return absl::OkStatus();
}

void Describe(Fields& fields, SequenceState& state) {
  Value schedulers = Value::List();
  for (const ScheduleState& schedule : state.schedules) schedulers.Append(ToValue(schedule));
  fields.Ints("_milestones", state.milestones);
  fields.Int("last_epoch", state.last_epoch);
  fields.Doubles("_last_lr", state.last_lr);
  fields.Field("_schedulers", schedulers, [&](const Value& found) { return ReadSchedules(found, state.schedules); });
}

absl::Status FromValue(const Value& value, SequenceState& state) {
  const size_t groups = state.last_lr.size();
  Fields reader(value);
  Describe(reader, state);
  LOCKSTEP_RETURN_IF_ERROR(reader.status());
  LOCKSTEP_RETURN_IF_ERROR(CheckSequence(state.milestones, state.schedules.size()));
  LOCKSTEP_RETURN_IF_ERROR(CheckEpoch(state.last_epoch));
  return CheckRates("_last_lr", state.last_lr, groups);
}

}  // namespace

LRScheduler::LRScheduler(Optimizer* optimizer, bool sequential, SequenceState state)
    : optimizer_(optimizer), sequential_(sequential), state_(std::make_unique<SequenceState>(std::move(state))) {}

LRScheduler::LRScheduler(LRScheduler&&) noexcept = default;
LRScheduler& LRScheduler::operator=(LRScheduler&&) noexcept = default;
LRScheduler::~LRScheduler() = default;

const std::vector<double>& LRScheduler::GetLastLr() const { return state_->last_lr; }

absl::StatusOr<LRScheduler> LRScheduler::Create(Optimizer* optimizer, const Schedule& schedule) {
  return Make(optimizer, SequentialLR{{schedule}, {}}, /*sequential=*/false);
}

absl::StatusOr<LRScheduler> LRScheduler::Create(Optimizer* optimizer, const SequentialLR& schedule) {
  return Make(optimizer, schedule, /*sequential=*/true);
}

absl::StatusOr<LRScheduler> LRScheduler::Make(Optimizer* optimizer, const SequentialLR& schedule, bool sequential) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSequence(schedule.milestones, schedule.schedulers.size()));
  for (const Schedule& one : schedule.schedulers) LOCKSTEP_RETURN_IF_ERROR(Check(one));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<double> rates, TorchStatusOr("LRScheduler", [&] {
                              return Rates(*optimizer, optimizer->param_groups().size());
                            }));
  SequenceState state{{}, schedule.milestones, 0, {}};
  // In Python the schedulers exist before the sequence, and each has made its first step.
  for (const Schedule& one : schedule.schedulers) {
    state.schedules.push_back({one, rates, /*last_epoch=*/-1, /*step_count=*/0, {}});
    StepOne(*optimizer, state.schedules.back(), /*initial=*/true);
  }
  if (sequential) {
    SetRates(*optimizer, rates);
    for (ScheduleState& each : state.schedules) --each.last_epoch;
    state.schedules[0].step_count = 0;
    StepOne(*optimizer, state.schedules[0], /*initial=*/true);
  }
  state.last_lr = state.schedules[0].last_lr;
  return LRScheduler(optimizer, sequential, std::move(state));
}

void LRScheduler::Step() {
  const auto& milestones = state_->milestones;
  ++state_->last_epoch;
  const auto next = std::upper_bound(milestones.begin(), milestones.end(), state_->last_epoch);
  ScheduleState& schedule = state_->schedules[next - milestones.begin()];
  const bool begins = next != milestones.begin() && *(next - 1) == state_->last_epoch;
  if (begins) {
    StartOver(*optimizer_, schedule);
  } else {
    StepOne(*optimizer_, schedule);
  }
  state_->last_lr = schedule.last_lr;
}

Value LRScheduler::StateDict() const {
  if (!sequential_) return ToValue(state_->schedules[0]);
  SequenceState copy = *state_;
  Fields writer;
  Describe(writer, copy);
  return writer.dict();
}

absl::Status LRScheduler::LoadStateDict(const Value& state_dict) {
  SequenceState read = *state_;
  LOCKSTEP_RETURN_IF_ERROR(sequential_ ? FromValue(state_dict, read) : FromValue(state_dict, read.schedules[0]));
  if (!sequential_) read.last_lr = read.schedules[0].last_lr;
  *state_ = std::move(read);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint
