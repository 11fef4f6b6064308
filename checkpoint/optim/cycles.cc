// The schedules that anneal between rates and momenta which the options name.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/scheduler.h"

namespace lockstep::checkpoint::optim {
namespace {

class WarmRestartsScheduler : public EpochScheduler, CosineAnnealingWarmRestarts {
 public:
  explicit WarmRestartsScheduler(const CosineAnnealingWarmRestarts& options)
      : CosineAnnealingWarmRestarts(options), T_i_(options.T_0) {}

  absl::Status Check(Groups&) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("T_0", T_0));
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("T_i", T_i_));
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("T_mult", T_mult));
    return CheckFinite("eta_min", eta_min);
  }
  void DescribeOptions(Fields& fields) override {
    fields.Int("T_0", T_0);
    fields.Int("T_i", T_i_);
    fields.Int("T_mult", T_mult);
    fields.Double("eta_min", eta_min);
    const Value written = T_cur_is_int_ ? Value(static_cast<int64_t>(T_cur_)) : Value(T_cur_);
    fields.Field("T_cur", written, [&](const Value& found) { return ReadTCur(found); });
  }

  // It does not count steps.
  void Step(Groups& groups) override {
    if (last_epoch_ < 0) {
      T_i_ = T_0;
      T_cur_ = 0;
      T_cur_is_int_ = true;
    } else if (++T_cur_ >= T_i_) {
      T_cur_ = std::fmod(T_cur_, T_i_);
      T_i_ = Capped(static_cast<double>(T_i_) * T_mult);
    }
    last_epoch_ = last_epoch_ < 0 ? 0 : last_epoch_ + 1;
    Update(groups, /*closed=*/false);
  }
  void Step(Groups& groups, double epoch) override {
    if (!(epoch >= 0 && epoch <= kMostEpochs))
      ThrowIfError(absl::InvalidArgumentError(absl::StrCat("epoch is ", epoch, ", expected 0 or more")));
    if (epoch < T_0) {
      T_i_ = T_0;
      T_cur_ = epoch;
    } else if (T_mult == 1) {
      T_cur_ = std::fmod(epoch, T_0);
    } else {
      const double mult = T_mult;
      const double restarts = std::trunc(std::log(epoch / T_0 * (mult - 1) + 1) / std::log(mult));
      T_cur_ = epoch - T_0 * (std::pow(mult, restarts) - 1) / (mult - 1);
      T_i_ = Capped(T_0 * std::pow(mult, restarts));
    }
    T_cur_is_int_ = false;
    last_epoch_ = static_cast<int64_t>(epoch);
    Update(groups, /*closed=*/false);
  }
  double Next(const Group& group) const override {
    return eta_min + (group.base_lr - eta_min) * (1 + std::cos(kPi * T_cur_ / T_i_)) / 2;
  }

 private:
  static int64_t Capped(double epochs) { return epochs < kMostEpochs ? static_cast<int64_t>(epochs) : kMostEpochs; }

  absl::Status ReadTCur(const Value& found) {
    LOCKSTEP_ASSIGN_OR_RETURN(T_cur_, GetNumber(found, KeyPath(std::vector<Value>())));
    T_cur_is_int_ = found.is_int();
    if (T_cur_ >= -1 && T_cur_ <= kMostEpochs) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("expected an epoch, found ", T_cur_));
  }

  int64_t T_i_;               // NOLINT(readability-identifier-naming): Python's name
  double T_cur_ = -1;         // NOLINT(readability-identifier-naming)
  bool T_cur_is_int_ = true;  // NOLINT(readability-identifier-naming): it is a float after Step(epoch), as in Python
};

absl::Status CheckDivisor(const char* name, double divisor) {
  if (divisor != 0 && std::isfinite(divisor)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", divisor, ", expected a number other than 0"));
}

// A part of OneCycleLR's steps, up to end_step. The others are keys of a group.
struct Phase {
  double end_step;
  std::string start_lr, end_lr, start_momentum, end_momentum;
};

double Anneal(const std::string& strategy, double start, double end, double share) {
  if (strategy == "linear") return (end - start) * share + start;
  return end + (start - end) / 2.0 * (std::cos(kPi * share) + 1);
}

class OneCycleScheduler : public EpochScheduler, OneCycleLR {
 public:
  explicit OneCycleScheduler(const OneCycleLR& options) : OneCycleLR(options) {
    if (!total_steps && epochs && steps_per_epoch && *epochs > 0 && *steps_per_epoch > 0)
      total_steps = *steps_per_epoch <= kMostEpochs / *epochs ? *epochs * *steps_per_epoch : kMostEpochs + 1;
    steps_ = total_steps.value_or(0);
    const double rise = pct_start * static_cast<double>(steps_) - 1;
    phases_.push_back({rise, "initial_lr", "max_lr", "max_momentum", "base_momentum"});
    if (three_phase) {
      const double fall = 2 * pct_start * static_cast<double>(steps_) - 2;
      phases_.push_back({fall, "max_lr", "initial_lr", "base_momentum", "max_momentum"});
      phases_.push_back({LastStep(), "initial_lr", "min_lr", "max_momentum", "max_momentum"});
    } else {
      phases_.push_back({LastStep(), "max_lr", "min_lr", "base_momentum", "max_momentum"});
    }
  }

  absl::Status Check(Groups& groups) const override {
    if (!total_steps) {
      if (!epochs || !steps_per_epoch)
        return absl::InvalidArgumentError("expected total_steps, or epochs and steps_per_epoch");
      LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("epochs", *epochs));
      LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("steps_per_epoch", *steps_per_epoch));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("total_steps", steps_));
    if (!(pct_start >= 0 && pct_start <= 1))
      return absl::InvalidArgumentError(absl::StrCat("pct_start is ", pct_start, ", expected 0 to 1"));
    LOCKSTEP_RETURN_IF_ERROR(CheckChoice("anneal_strategy", anneal_strategy, {"cos", "linear"}));
    LOCKSTEP_RETURN_IF_ERROR(CheckNumbers("max_lr", max_lr, groups));
    LOCKSTEP_RETURN_IF_ERROR(CheckDivisor("div_factor", div_factor));
    LOCKSTEP_RETURN_IF_ERROR(CheckDivisor("final_div_factor", final_div_factor));
    LOCKSTEP_RETURN_IF_ERROR(CheckMomentum(groups, cycle_momentum, base_momentum, max_momentum));
    return CheckEpoch(0);
  }
  absl::Status CheckState(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(EpochScheduler::CheckState(groups));
    LOCKSTEP_RETURN_IF_ERROR(CheckBeta1(groups, cycle_momentum, use_beta1_));
    for (const Phase& phase : phases_) {
      LOCKSTEP_RETURN_IF_ERROR(CheckKey(groups, phase.start_lr));
      LOCKSTEP_RETURN_IF_ERROR(CheckKey(groups, phase.end_lr));
      if (!cycle_momentum) continue;
      LOCKSTEP_RETURN_IF_ERROR(CheckKey(groups, phase.start_momentum));
      LOCKSTEP_RETURN_IF_ERROR(CheckKey(groups, phase.end_momentum));
    }
    return absl::OkStatus();
  }

  void DescribeOptions(Fields& fields) override {
    fields.Int("total_steps", steps_);
    fields.Field("_schedule_phases", PhasesValue(), [&](const Value& found) { return ReadPhases(found); });
    DescribeString(fields, "_anneal_func_type", anneal_strategy);
    fields.Bool("cycle_momentum", cycle_momentum);
    if (cycle_momentum) fields.Bool("use_beta1", use_beta1_);
  }

  void Prepare(Groups& groups) override {
    for (size_t i = 0; i < groups.size(); ++i) {
      const double max = ForGroup(max_lr, i), initial = max / div_factor;
      groups.Add(i, "initial_lr", initial);
      groups.Add(i, "max_lr", max);
      groups.Add(i, "min_lr", initial / final_div_factor);
    }
    if (!cycle_momentum) return;
    use_beta1_ = groups.momentum(0).is_beta1;
    BeginMomentum(groups, base_momentum, max_momentum);
  }

  absl::Status CheckEpoch(int64_t epoch) const override {
    if (epoch > steps_) return absl::OutOfRangeError(absl::StrCat("step ", epoch, " of ", steps_));
    const auto [phase, start] = PhaseOf(epoch);
    if (phase->end_step != start) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("pct_start is ", pct_start, ": the phase of step ", epoch, " has no length"));
  }
  double Next(const Group& group) const override {
    const auto [phase, start] = PhaseOf(last_epoch_);
    const double share = (last_epoch_ - start) / (phase->end_step - start);
    const auto anneal = [&](const std::string& from, const std::string& to) {
      return Anneal(anneal_strategy, group.groups.Added(group.index, from), group.groups.Added(group.index, to), share);
    };
    if (cycle_momentum) *group.groups.momentum(group.index).value = anneal(phase->start_momentum, phase->end_momentum);
    return anneal(phase->start_lr, phase->end_lr);
  }

 private:
  double LastStep() const { return static_cast<double>(steps_ - 1); }

  // The phase of a step, and the step at which it starts.
  std::pair<const Phase*, double> PhaseOf(int64_t step) const {
    double start = 0;
    for (size_t i = 0; i + 1 < phases_.size(); ++i) {
      if (step <= phases_[i].end_step) return {&phases_[i], start};
      start = phases_[i].end_step;
    }
    return {&phases_.back(), start};
  }

  absl::Status CheckKey(const Groups& groups, const std::string& key) const {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (!groups.added(i).Find(key))
        return absl::InvalidArgumentError(absl::StrCat("[\"_schedule_phases\"]: the optimizer's groups have no ", key));
    }
    return absl::OkStatus();
  }

  static void Describe(Fields& fields, Phase& phase) {
    fields.Double("end_step", phase.end_step);
    DescribeString(fields, "start_lr", phase.start_lr);
    DescribeString(fields, "end_lr", phase.end_lr);
    DescribeString(fields, "start_momentum", phase.start_momentum);
    DescribeString(fields, "end_momentum", phase.end_momentum);
  }
  // In Python the last step is an int.
  Value PhasesValue() {
    Value list = Value::List();
    for (Phase& phase : phases_) {
      Fields writer;
      Describe(writer, phase);
      Value dict = writer.dict();
      if (&phase == &phases_.back()) dict.Set("end_step", static_cast<int64_t>(phase.end_step));
      list.Append(dict);
    }
    return list;
  }
  absl::Status ReadPhases(const Value& found) {
    if (!found.is_list() || found.size() == 0)
      return absl::InvalidArgumentError(absl::StrCat("expected a list of phases, found ", found.type_name()));
    phases_.clear();
    for (const Value& item : found.items()) {
      Fields reader(item);
      Describe(reader, phases_.emplace_back());
      LOCKSTEP_RETURN_IF_ERROR(reader.status());
      LOCKSTEP_RETURN_IF_ERROR(CheckFinite("end_step", phases_.back().end_step));
    }
    return absl::OkStatus();
  }

  int64_t steps_;
  std::vector<Phase> phases_;
  bool use_beta1_ = false;
};

class CyclicScheduler : public EpochScheduler, CyclicLR {
 public:
  explicit CyclicScheduler(const CyclicLR& options)
      : CyclicLR(options),
        total_size_(static_cast<double>(step_size_up) + static_cast<double>(step_size_down.value_or(step_size_up))),
        step_ratio_(static_cast<double>(step_size_up) / total_size_) {}

  absl::Status Check(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckNumbers("base_lr", base_lr, groups));
    LOCKSTEP_RETURN_IF_ERROR(CheckNumbers("max_lr", max_lr, groups));
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("step_size_up", step_size_up));
    if (step_size_down) LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("step_size_down", *step_size_down, /*least=*/0));
    if (!scale_fn) LOCKSTEP_RETURN_IF_ERROR(CheckChoice("mode", mode, {"triangular", "triangular2", "exp_range"}));
    LOCKSTEP_RETURN_IF_ERROR(CheckFinite("gamma", gamma));
    LOCKSTEP_RETURN_IF_ERROR(CheckMomentum(groups, cycle_momentum, base_momentum, max_momentum));
    if (total_size_ > 0 && step_ratio_ > 0 && step_ratio_ <= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("[\"total_size\"]: a cycle of ", total_size_, " epochs that rises in ", step_ratio_, " of them"));
  }
  absl::Status CheckState(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(EpochScheduler::CheckState(groups));
    return CheckBeta1(groups, cycle_momentum, use_beta1_);
  }
  void DescribeOptions(Fields& fields) override {
    fields.Doubles("max_lrs", max_lr);
    fields.Double("total_size", total_size_);
    fields.Double("step_ratio", step_ratio_);
    DescribeString(fields, "mode", mode);
    fields.Double("gamma", gamma);
    DescribeString(fields, "scale_mode", scale_mode);
    fields.Bool("cycle_momentum", cycle_momentum);
    if (!cycle_momentum) return;
    fields.Bool("use_beta1", use_beta1_);
    fields.Doubles("base_momentums", base_momentum);
    fields.Doubles("max_momentums", max_momentum);
  }
  void DescribeEnd(Fields& fields) override { fields.WriteOnly("_scale_fn_custom", {}); }

  void Create(Groups& groups) override {
    EpochScheduler::Create(groups);
    base_lrs_ = ForEachGroup(base_lr, groups);
  }
  void Prepare(Groups& groups) override {
    groups.SetRates(ForEachGroup(base_lr, groups));
    max_lr = ForEachGroup(max_lr, groups);
    if (!scale_fn) scale_mode = mode == "exp_range" ? "iterations" : "cycle";
    if (!cycle_momentum) return;
    use_beta1_ = groups.momentum(0).is_beta1;
    base_momentum = ForEachGroup(base_momentum, groups);
    max_momentum = ForEachGroup(max_momentum, groups);
    BeginMomentum(groups, base_momentum, max_momentum);
  }

  double Next(const Group& group) const override {
    const double cycle = std::floor(1 + last_epoch_ / total_size_);
    const double place = 1.0 + last_epoch_ / total_size_ - cycle;
    const double height = place <= step_ratio_ ? place / step_ratio_ : (place - 1) / (step_ratio_ - 1);
    const double scale = Scale(scale_mode == "cycle" ? cycle : static_cast<double>(last_epoch_));
    if (cycle_momentum) {
      const double base = ForGroup(base_momentum, group.index), max = ForGroup(max_momentum, group.index);
      *group.groups.momentum(group.index).value = max - (max - base) * height * scale;
    }
    return group.base_lr + (ForGroup(max_lr, group.index) - group.base_lr) * height * scale;
  }

 private:
  double Scale(double x) const {
    if (scale_fn) return scale_fn(x);
    if (mode == "exp_range") return std::pow(gamma, x);
    return mode == "triangular" ? 1 : 1 / std::pow(2.0, x - 1);
  }

  double total_size_;
  double step_ratio_;
  bool use_beta1_ = false;
};

class SwaScheduler : public EpochScheduler, SWALR {
 public:
  explicit SwaScheduler(const SWALR& options) : SWALR(options) {}

  absl::Status Check(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckNumbers("swa_lr", swa_lr, groups));
    LOCKSTEP_RETURN_IF_ERROR(CheckChoice("anneal_strategy", anneal_strategy, {"cos", "linear"}));
    return CheckEpochs("anneal_epochs", anneal_epochs, /*least=*/0);
  }
  void DescribeOptions(Fields& fields) override {
    DescribeString(fields, "_anneal_strategy", anneal_strategy);
    fields.Int("anneal_epochs", anneal_epochs);
  }
  void Prepare(Groups& groups) override {
    for (size_t i = 0; i < groups.size(); ++i) groups.Add(i, "swa_lr", ForGroup(swa_lr, i));
  }
  double Next(const Group& group) const override {
    const double end = group.groups.Added(group.index, "swa_lr");
    const int64_t step = anneal_epochs == 0 ? std::max<int64_t>(1, step_count_ - 1) : step_count_ - 1;
    const double before = Share(step - 1), share = Share(step);
    const double initial = before == 1 ? end : (group.lr - before * end) / (1 - before);
    return end * share + initial * (1 - share);
  }

 private:
  // The share of the way to swa_lr after a number of steps.
  double Share(int64_t steps) const {
    const double time = std::max(0.0, std::min(1.0, static_cast<double>(steps) / std::max<int64_t>(1, anneal_epochs)));
    return anneal_strategy == "linear" ? time : (1 - std::cos(kPi * time)) / 2;
  }
};

}  // namespace

SchedulerPtr Make(const CosineAnnealingWarmRestarts& options) {
  return std::make_unique<WarmRestartsScheduler>(options);
}
SchedulerPtr Make(const OneCycleLR& options) { return std::make_unique<OneCycleScheduler>(options); }
SchedulerPtr Make(const CyclicLR& options) { return std::make_unique<CyclicScheduler>(options); }
SchedulerPtr Make(const SWALR& options) { return std::make_unique<SwaScheduler>(options); }

}  // namespace lockstep::checkpoint::optim
