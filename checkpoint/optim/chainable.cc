// The schedules whose rate is computed from the rate before, and has a closed form, and those of a function.

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/optim/scheduler.h"

namespace lockstep::checkpoint::optim {
namespace {

absl::Status CheckFactor(const char* name, double factor, bool may_be_zero = false) {
  if ((factor > 0 && factor <= 1) || (may_be_zero && factor == 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", factor, ", expected ", may_be_zero ? "0 to 1" : "more than 0 and at most 1"));
}

class StepScheduler : public EpochScheduler, StepLR {
 public:
  explicit StepScheduler(const StepLR& options) : StepLR(options) {}

  absl::Status Check(Groups&) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("step_size", step_size));
    return CheckFinite("gamma", gamma);
  }
  void DescribeOptions(Fields& fields) override {
    fields.Int("step_size", step_size);
    fields.Double("gamma", gamma);
  }
  double Next(const Group& group) const override {
    return last_epoch_ == 0 || last_epoch_ % step_size != 0 ? group.lr : group.lr * gamma;
  }
  double Closed(const Group& group) const override { return group.base_lr * std::pow(gamma, last_epoch_ / step_size); }
};

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

class MultiStepScheduler : public EpochScheduler, MultiStepLR {
 public:
  explicit MultiStepScheduler(const MultiStepLR& options) : MultiStepLR(options) {}

  absl::Status Check(Groups&) const override { return CheckFinite("gamma", gamma); }
  void DescribeOptions(Fields& fields) override {
    fields.Field("milestones", Counter(milestones), [&](const Value& found) { return ReadCounter(found, milestones); });
    fields.Double("gamma", gamma);
  }
  double Next(const Group& group) const override {
    const auto times = std::count(milestones.begin(), milestones.end(), last_epoch_);
    return times == 0 ? group.lr : group.lr * std::pow(gamma, times);
  }
  double Closed(const Group& group) const override {
    const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                      [&](int64_t milestone) { return milestone <= last_epoch_; });
    return group.base_lr * std::pow(gamma, passed);
  }
};

class ExponentialScheduler : public EpochScheduler, ExponentialLR {
 public:
  explicit ExponentialScheduler(const ExponentialLR& options) : ExponentialLR(options) {}

  absl::Status Check(Groups&) const override { return CheckFinite("gamma", gamma); }
  void DescribeOptions(Fields& fields) override { fields.Double("gamma", gamma); }
  double Next(const Group& group) const override { return initial_ ? group.lr : group.lr * gamma; }
  double Closed(const Group& group) const override { return group.base_lr * std::pow(gamma, last_epoch_); }
};

class CosineScheduler : public EpochScheduler, CosineAnnealingLR {
 public:
  explicit CosineScheduler(const CosineAnnealingLR& options) : CosineAnnealingLR(options) {}

  absl::Status Check(Groups&) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("T_max", T_max));
    return CheckFinite("eta_min", eta_min);
  }
  void DescribeOptions(Fields& fields) override {
    fields.Int("T_max", T_max);
    fields.Double("eta_min", eta_min);
  }
  double Next(const Group& group) const override {
    const double t_max = T_max;
    if (initial_) return group.lr;
    // One epoch past the minimum the quotient below is 0 / 0.
    if ((last_epoch_ - 1 - T_max) % (2 * T_max) == 0)
      return group.lr + (group.base_lr - eta_min) * (1 - std::cos(kPi / t_max)) / 2;
    return (1 + std::cos(kPi * last_epoch_ / t_max)) / (1 + std::cos(kPi * (last_epoch_ - 1) / t_max)) *
               (group.lr - eta_min) +
           eta_min;
  }
  double Closed(const Group& group) const override {
    return eta_min + (group.base_lr - eta_min) * (1 + std::cos(kPi * last_epoch_ / T_max)) / 2;
  }
};

class LinearScheduler : public EpochScheduler, LinearLR {
 public:
  explicit LinearScheduler(const LinearLR& options) : LinearLR(options) {}

  absl::Status Check(Groups&) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckFactor("start_factor", start_factor));
    LOCKSTEP_RETURN_IF_ERROR(CheckFactor("end_factor", end_factor, /*may_be_zero=*/true));
    return CheckEpochs("total_iters", total_iters);
  }
  void DescribeOptions(Fields& fields) override {
    fields.Double("start_factor", start_factor);
    fields.Double("end_factor", end_factor);
    fields.Int("total_iters", total_iters);
  }
  double Next(const Group& group) const override {
    const double change = end_factor - start_factor;
    if (last_epoch_ == 0) return group.lr * start_factor;
    if (initial_ || last_epoch_ > total_iters) return group.lr;
    return group.lr * (1.0 + change / (total_iters * start_factor + (last_epoch_ - 1) * change));
  }
  double Closed(const Group& group) const override {
    const double passed = std::min(total_iters, last_epoch_);
    return group.base_lr * (start_factor + (end_factor - start_factor) * passed / total_iters);
  }
};

class ConstantScheduler : public EpochScheduler, ConstantLR {
 public:
  explicit ConstantScheduler(const ConstantLR& options) : ConstantLR(options) {}

  absl::Status Check(Groups&) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckFactor("factor", factor));
    return CheckEpochs("total_iters", total_iters);
  }
  void DescribeOptions(Fields& fields) override {
    fields.Double("factor", factor);
    fields.Int("total_iters", total_iters);
  }
  double Next(const Group& group) const override {
    if (last_epoch_ == 0) return group.lr * factor;
    return last_epoch_ == total_iters ? group.lr * (1.0 / factor) : group.lr;
  }
  double Closed(const Group& group) const override {
    return group.base_lr * (factor + (last_epoch_ >= total_iters) * (1 - factor));
  }
};

class PolynomialScheduler : public EpochScheduler, PolynomialLR {
 public:
  explicit PolynomialScheduler(const PolynomialLR& options) : PolynomialLR(options) {}

  absl::Status Check(Groups&) const override {
    LOCKSTEP_RETURN_IF_ERROR(CheckEpochs("total_iters", total_iters));
    if (power >= 0 && std::isfinite(power)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("power is ", power, ", expected 0 or more"));
  }
  void DescribeOptions(Fields& fields) override {
    fields.Int("total_iters", total_iters);
    fields.Double("power", power);
  }
  double Next(const Group& group) const override {
    const double total = total_iters, epoch = last_epoch_;
    if (initial_ || last_epoch_ > total_iters) return group.lr;
    return group.lr * std::pow((1.0 - epoch / total) / (1.0 - (epoch - 1) / total), power);
  }
  double Closed(const Group& group) const override {
    const double total = total_iters, passed = std::min(total_iters, last_epoch_);
    return group.base_lr * std::pow(1.0 - passed / total, power);
  }
};

// A schedule of the caller's functions.
template <typename Options>
class FunctionScheduler : public EpochScheduler, protected Options {
 public:
  explicit FunctionScheduler(const Options& options) : Options(options) {}

  absl::Status Check(Groups& groups) const override {
    for (const auto& function : this->lr_lambda) {
      if (!function) return absl::InvalidArgumentError("lr_lambda has an element without a function");
    }
    return CheckSize("lr_lambda", this->lr_lambda.size(), groups);
  }
  void DescribeOptions(Fields&) override {}
  // Python writes None for each group's function.
  void DescribeEnd(Fields& fields) override {
    fields.WriteOnly("lr_lambdas", Value::List(std::vector<Value>(base_lrs_.size())));
  }

 protected:
  double Call(size_t group) const { return ForGroup(this->lr_lambda, group)(last_epoch_); }
};

class LambdaScheduler : public FunctionScheduler<LambdaLR> {
 public:
  using FunctionScheduler::FunctionScheduler;
  double Next(const Group& group) const override { return group.base_lr * Call(group.index); }
};

class MultiplicativeScheduler : public FunctionScheduler<MultiplicativeLR> {
 public:
  using FunctionScheduler::FunctionScheduler;
  double Next(const Group& group) const override { return initial_ ? group.lr : group.lr * Call(group.index); }
};

}  // namespace

SchedulerPtr Make(const StepLR& options) { return std::make_unique<StepScheduler>(options); }
SchedulerPtr Make(const MultiStepLR& options) { return std::make_unique<MultiStepScheduler>(options); }
SchedulerPtr Make(const ExponentialLR& options) { return std::make_unique<ExponentialScheduler>(options); }
SchedulerPtr Make(const CosineAnnealingLR& options) { return std::make_unique<CosineScheduler>(options); }
SchedulerPtr Make(const LinearLR& options) { return std::make_unique<LinearScheduler>(options); }
SchedulerPtr Make(const ConstantLR& options) { return std::make_unique<ConstantScheduler>(options); }
SchedulerPtr Make(const PolynomialLR& options) { return std::make_unique<PolynomialScheduler>(options); }
SchedulerPtr Make(const LambdaLR& options) { return std::make_unique<LambdaScheduler>(options); }
SchedulerPtr Make(const MultiplicativeLR& options) { return std::make_unique<MultiplicativeScheduler>(options); }

}  // namespace lockstep::checkpoint::optim
