#include "lockstep/checkpoint/optim/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::optim {

using absl::InvalidArgumentError;
using absl::StrCat;

std::vector<double> Groups::Rates() const {
  std::vector<double> rates;
  for (size_t i = 0; i < size(); ++i) rates.push_back(options(i).get_lr());
  return rates;
}

void Groups::SetRates(const std::vector<double>& rates) {
  for (size_t i = 0; i < size(); ++i) options(i).set_lr(rates[i]);
}

void Scheduler::SetRates(Groups& groups, std::vector<double> rates) {
  groups.SetRates(rates);
  last_lr_ = std::move(rates);
}

absl::Status Scheduler::CheckLastLr(const Groups& groups) const { return CheckRates("_last_lr", last_lr_, groups); }

void EpochScheduler::Create(Groups& groups) {
  Prepare(groups);
  const std::vector<double> rates = groups.Rates();
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups.added(i).Find("initial_lr")) groups.Add(i, "initial_lr", rates[i]);
    base_lrs_.push_back(groups.Added(i, "initial_lr"));
  }
  StepInitially(groups);
}

void EpochScheduler::StepInitially(Groups& groups) {
  step_count_ = 0;
  initial_ = true;
  Step(groups);
  initial_ = false;
}

void EpochScheduler::Step(Groups& groups) {
  ThrowIfError(CheckEpoch(last_epoch_ + 1));
  ++step_count_;
  ++last_epoch_;
  Update(groups, /*closed=*/false);
}

void EpochScheduler::Step(Groups& groups, double epoch) {
  if (!(epoch >= 0 && epoch <= kMostEpochs && epoch == std::floor(epoch)))
    ThrowIfError(InvalidArgumentError(StrCat("epoch is ", epoch, ", expected a whole number from 0 on")));
  ThrowIfError(CheckEpoch(static_cast<int64_t>(epoch)));
  ++step_count_;
  last_epoch_ = static_cast<int64_t>(epoch);
  Update(groups, /*closed=*/true);
}

void EpochScheduler::StartOver(Groups& groups) {
  last_epoch_ = 0;
  Update(groups, /*closed=*/true);
}

void EpochScheduler::Undo() {
  --last_epoch_;
  ++undone_;
}

void EpochScheduler::Update(Groups& groups, bool closed) {
  std::vector<double> rates = groups.Rates();
  for (size_t i = 0; i < rates.size(); ++i) {
    const Group group = {groups, i, rates[i], base_lrs_[i]};
    rates[i] = closed ? Closed(group) : Next(group);
  }
  SetRates(groups, std::move(rates));
}

void EpochScheduler::Describe(Fields& fields) {
  DescribeOptions(fields);
  fields.Doubles("base_lrs", base_lrs_);
  fields.Int("last_epoch", last_epoch_);
  fields.Int("_step_count", step_count_);
  fields.WriteOnly("_is_initial", false);
  fields.WriteOnly("_get_lr_called_within_step", false);
  fields.Doubles("_last_lr", last_lr_);
  DescribeEnd(fields);
}

absl::Status EpochScheduler::CheckState(Groups& groups) const {
  LOCKSTEP_RETURN_IF_ERROR(Check(groups));
  if (last_epoch_ < -1 - undone_ || last_epoch_ > kMostEpochs)
    return InvalidArgumentError(StrCat("[\"last_epoch\"]: expected an epoch, found ", last_epoch_));
  LOCKSTEP_RETURN_IF_ERROR(CheckRates("base_lrs", base_lrs_, groups));
  return CheckLastLr(groups);
}

absl::Status CheckEpochs(absl::string_view name, int64_t epochs, int64_t least) {
  if (epochs >= least && epochs <= kMostEpochs) return absl::OkStatus();
  return InvalidArgumentError(StrCat(name, " is ", epochs, ", expected at least ", least));
}

absl::Status CheckFinite(absl::string_view name, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidArgumentError(StrCat(name, " is ", value, ", expected a finite number"));
}

absl::Status CheckChoice(absl::string_view name, const std::string& value, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return absl::OkStatus();
  return InvalidArgumentError(StrCat(name, " is \"", value, "\", expected ", absl::StrJoin(choices, " or ")));
}

absl::Status CheckSize(absl::string_view name, size_t size, const Groups& groups) {
  if (size == 1 || size == groups.size()) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat(name, " has ", size, " elements, expected 1, or one for each of the ", groups.size(), " groups"));
}

absl::Status CheckNumbers(absl::string_view name, const std::vector<double>& numbers, const Groups& groups) {
  for (const double number : numbers) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(name, number));
  return CheckSize(name, numbers.size(), groups);
}

absl::Status CheckRates(absl::string_view key, const std::vector<double>& rates, const Groups& groups) {
  if (rates.size() == groups.size()) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat("[\"", key, "\"]: ", rates.size(), " rates, the optimizer has ", groups.size(), " groups"));
}

std::vector<double> ForEachGroup(const std::vector<double>& numbers, const Groups& groups) {
  return numbers.size() == 1 ? std::vector<double>(groups.size(), numbers[0]) : numbers;
}

void DescribeString(Fields& fields, const char* key, std::string& field) {
  fields.Field(key, field, [&](const Value& found) -> absl::Status {
    if (!found.is_string()) return InvalidArgumentError(StrCat("expected str, found ", found.type_name()));
    field = found.string_value();
    return absl::OkStatus();
  });
}

absl::Status CheckMomentum(Groups& groups, bool cycles, const std::vector<double>& base,
                           const std::vector<double>& max) {
  if (!cycles) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers("base_momentum", base, groups));
  LOCKSTEP_RETURN_IF_ERROR(CheckNumbers("max_momentum", max, groups));
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups.momentum(i).value)
      return InvalidArgumentError("cycle_momentum is true, expected false: the optimizer has no momentum and no beta1");
  }
  return absl::OkStatus();
}

void BeginMomentum(Groups& groups, const std::vector<double>& base, const std::vector<double>& max) {
  for (size_t i = 0; i < groups.size(); ++i) {
    *groups.momentum(i).value = ForGroup(max, i);
    groups.Add(i, "max_momentum", ForGroup(max, i));
    groups.Add(i, "base_momentum", ForGroup(base, i));
  }
}

absl::Status CheckBeta1(Groups& groups, bool cycles, bool use_beta1) {
  if (!cycles || groups.momentum(0).is_beta1 == use_beta1) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat("[\"use_beta1\"]: found ", use_beta1 ? "True" : "False", ", which is another optimizer's"));
}

SchedulerPtr MakeScheduler(const Schedule& schedule) {
  return std::visit([](const auto& options) { return Make(options); }, schedule);
}

}  // namespace lockstep::checkpoint::optim
