// ReduceLROnPlateau, whose steps take a metric.

#include <limits>
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

// It keeps no initial rate, and cannot be in a SequentialLR or ChainedScheduler.
class PlateauScheduler : public Scheduler, ReduceLROnPlateau {
 public:
  explicit PlateauScheduler(const ReduceLROnPlateau& options) : ReduceLROnPlateau(options), best_(Worst()) {
    if (min_lr.size() == 1) default_min_lr_ = min_lr[0];
  }

  absl::Status Check(Groups& groups) const override {
    if (!(factor < 1)) return absl::InvalidArgumentError(absl::StrCat("factor is ", factor, ", expected less than 1"));
    LOCKSTEP_RETURN_IF_ERROR(CheckFinite("factor", factor));
    LOCKSTEP_RETURN_IF_ERROR(CheckChoice("mode", mode, {"min", "max"}));
    LOCKSTEP_RETURN_IF_ERROR(CheckChoice("threshold_mode", threshold_mode, {"rel", "abs"}));
    return CheckSize("min_lr", min_lr.size(), groups);
  }
  void Create(Groups& groups) override {
    min_lr = ForEachGroup(min_lr, groups);
    KeepRates(groups);
  }
  void Step(Groups&) override {
    ThrowIfError(absl::InvalidArgumentError("ReduceLROnPlateau: expected Step(metric), found Step()"));
  }
  void Step(Groups& groups, double metric) override {
    ++last_epoch_;
    if (IsBetter(metric)) {
      best_ = metric;
      bad_epochs_ = 0;
    } else {
      ++bad_epochs_;
    }
    if (cooldown_counter_ > 0) {
      --cooldown_counter_;
      bad_epochs_ = 0;
    }
    if (bad_epochs_ > patience) {
      Reduce(groups);
      cooldown_counter_ = cooldown;
      bad_epochs_ = 0;
    }
    KeepRates(groups);
  }

  void Describe(Fields& fields) override {
    fields.Double("factor", factor);
    fields.Field("default_min_lr", default_min_lr_, [&](const Value& found) -> absl::Status {
      if (!found.is_none()) LOCKSTEP_RETURN_IF_ERROR(GetNumber(found, KeyPath(std::vector<Value>())).status());
      default_min_lr_ = found;
      return absl::OkStatus();
    });
    fields.Doubles("min_lrs", min_lr);
    fields.Int("patience", patience);
    fields.Int("cooldown", cooldown);
    fields.Double("eps", eps);
    fields.Int("last_epoch", last_epoch_);
    fields.Doubles("_last_lr", last_lr_);
    fields.WriteOnly("mode_worse", Worst());
    DescribeString(fields, "mode", mode);
    fields.Double("threshold", threshold);
    DescribeString(fields, "threshold_mode", threshold_mode);
    fields.Double("best", best_);
    fields.Int("cooldown_counter", cooldown_counter_);
    fields.Int("num_bad_epochs", bad_epochs_);
  }
  absl::Status CheckState(Groups& groups) const override {
    LOCKSTEP_RETURN_IF_ERROR(Check(groups));
    LOCKSTEP_RETURN_IF_ERROR(CheckRates("min_lrs", min_lr, groups));
    return CheckLastLr(groups);
  }

  void Undo() override {}
  void StepInitially(Groups&) override {}
  void StartOver(Groups&) override {}

 private:
  double Worst() const {
    return mode == "min" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  }

  bool IsBetter(double metric) const {
    const bool relative = threshold_mode == "rel";
    if (mode == "min") return metric < (relative ? best_ * (1.0 - threshold) : best_ - threshold);
    return metric > (relative ? best_ * (threshold + 1.0) : best_ + threshold);
  }

  void Reduce(Groups& groups) const {
    std::vector<double> rates = groups.Rates();
    for (size_t i = 0; i < rates.size(); ++i) {
      const double reduced = rates[i] * factor, next = min_lr[i] > reduced ? min_lr[i] : reduced;
      if (rates[i] - next > eps) rates[i] = next;
    }
    groups.SetRates(rates);
  }

  Value default_min_lr_;  // None if there is one for each group
  double best_;
  int64_t last_epoch_ = 0;
  int64_t cooldown_counter_ = 0;
  int64_t bad_epochs_ = 0;
};

}  // namespace

SchedulerPtr Make(const ReduceLROnPlateau& options) { return std::make_unique<PlateauScheduler>(options); }

}  // namespace lockstep::checkpoint::optim
