// The common part of all schedules: the objects of Python's schedulers, with their attributes and methods. The order of
// arithmetic operations is Python's, on which the last bits depend.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_SCHEDULER_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_SCHEDULER_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/optim/fields.h"
#include "lockstep/checkpoint/optim/momentum.h"
#include "lockstep/checkpoint/optim/schedules.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::optim {

constexpr double kPi = 3.14159265358979323846;
// Epochs up to here are exact as a double, and twice as many as an int64_t.
constexpr int64_t kMostEpochs = int64_t{1} << 53;

// The groups that an optimizer has when the scheduler is created. The optimizer is borrowed.
class Groups {
 public:
  explicit Groups(torch::optim::Optimizer* optimizer)
      : optimizer_(optimizer), added_(optimizer->param_groups().size(), Value::Dict()) {}

  size_t size() const { return added_.size(); }
  std::vector<double> Rates() const;
  void SetRates(const std::vector<double>& rates);
  Momentum momentum(size_t group) { return FindMomentum(options(group)); }

  // The keys that Python's schedulers add to groups, such as initial_lr. C++ options cannot have them.
  const Value& added(size_t group) const { return added_[group]; }
  double Added(size_t group, const std::string& key) const { return added_[group].Find(key)->double_value(); }
  void Add(size_t group, const std::string& key, double value) { added_[group].Set(key, value); }

 private:
  torch::optim::OptimizerOptions& options(size_t group) const { return optimizer_->param_groups()[group].options(); }

  torch::optim::Optimizer* optimizer_;
  std::vector<Value> added_;
};

// Python's scheduler object. It is created with Create(), and read with Describe() and then CheckState().
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Checks the options.
  virtual absl::Status Check(Groups& groups) const = 0;
  // Does what Python's constructor does, with valid options.
  virtual void Create(Groups& groups) = 0;
  // step() and step(value). They throw StatusError.
  virtual void Step(Groups& groups) = 0;
  virtual void Step(Groups& groups, double value) = 0;
  // The keys of the state.
  virtual void Describe(Fields& fields) = 0;
  // Checks options and state, after Describe() has read them.
  virtual absl::Status CheckState(Groups& groups) const = 0;

  // For SequentialLR: takes back the epoch of Create(), makes that epoch again, and begins at a milestone.
  virtual void Undo() = 0;
  virtual void StepInitially(Groups& groups) = 0;
  virtual void StartOver(Groups& groups) = 0;

  const std::vector<double>& last_lr() const { return last_lr_; }

 protected:
  void SetRates(Groups& groups, std::vector<double> rates);
  // Takes the rates that are set already.
  void KeepRates(const Groups& groups) { last_lr_ = groups.Rates(); }
  absl::Status CheckLastLr(const Groups& groups) const;

  std::vector<double> last_lr_;
};

// A scheduler that counts epochs: all but ReduceLROnPlateau, SequentialLR and ChainedScheduler.
class EpochScheduler : public Scheduler {
 public:
  void Create(Groups& groups) override;
  void Step(Groups& groups) override;
  void Step(Groups& groups, double epoch) override;
  void Describe(Fields& fields) override;
  absl::Status CheckState(Groups& groups) const override;
  void Undo() override;
  void StepInitially(Groups& groups) override;
  void StartOver(Groups& groups) override;

 protected:
  // One group at the moment of a step.
  struct Group {
    Groups& groups;
    size_t index;
    double lr;
    double base_lr;
  };

  // The schedule's own keys, before and after the common ones.
  virtual void DescribeOptions(Fields& fields) = 0;
  virtual void DescribeEnd(Fields&) {}
  // Does what a constructor does before the first step.
  virtual void Prepare(Groups&) {}
  // Returns an error if the schedule has no such epoch.
  virtual absl::Status CheckEpoch(int64_t) const { return absl::OkStatus(); }
  // Returns a group's rate at last_epoch_, from the rate before or, for Closed(), from the initial one.
  virtual double Next(const Group& group) const = 0;
  virtual double Closed(const Group& group) const { return Next(group); }

  void Update(Groups& groups, bool closed);

  std::vector<double> base_lrs_;
  int64_t last_epoch_ = -1;
  int64_t step_count_ = 0;
  bool initial_ = false;  // true in the step that Create() makes
  int64_t undone_ = 0;
};

// Checks an option: InvalidArgument, with its name and value.
absl::Status CheckEpochs(absl::string_view name, int64_t epochs, int64_t least = 1);
absl::Status CheckFinite(absl::string_view name, double value);
absl::Status CheckChoice(absl::string_view name, const std::string& value, const std::vector<std::string>& choices);
// Checks that there is one of `size` things for all groups or one for each.
absl::Status CheckSize(absl::string_view name, size_t size, const Groups& groups);
absl::Status CheckNumbers(absl::string_view name, const std::vector<double>& numbers, const Groups& groups);
// Checks rates that were read, of which there must be one for each group.
absl::Status CheckRates(absl::string_view key, const std::vector<double>& rates, const Groups& groups);

// Returns the element for a group.
template <typename T>
const T& ForGroup(const std::vector<T>& elements, size_t group) {
  return elements[elements.size() == 1 ? 0 : group];
}
// Returns a copy with one number for each group.
std::vector<double> ForEachGroup(const std::vector<double>& numbers, const Groups& groups);

void DescribeString(Fields& fields, const char* key, std::string& field);

// The momentum part of OneCycleLR and CyclicLR.
absl::Status CheckMomentum(Groups& groups, bool cycles, const std::vector<double>& base,
                           const std::vector<double>& max);
// Sets the momentum to `max`, and adds both to the groups as Python does.
void BeginMomentum(Groups& groups, const std::vector<double>& base, const std::vector<double>& max);

// Checks that a state's use_beta1 fits the optimizer.
absl::Status CheckBeta1(Groups& groups, bool cycles, bool use_beta1);

using SchedulerPtr = std::unique_ptr<Scheduler>;
SchedulerPtr MakeScheduler(const Schedule& schedule);
// Defined in chainable.cc, cycles.cc, plateau.cc and sequences.cc.
SchedulerPtr Make(const StepLR& options);
SchedulerPtr Make(const MultiStepLR& options);
SchedulerPtr Make(const ExponentialLR& options);
SchedulerPtr Make(const CosineAnnealingLR& options);
SchedulerPtr Make(const LinearLR& options);
SchedulerPtr Make(const ConstantLR& options);
SchedulerPtr Make(const PolynomialLR& options);
SchedulerPtr Make(const LambdaLR& options);
SchedulerPtr Make(const MultiplicativeLR& options);
SchedulerPtr Make(const CosineAnnealingWarmRestarts& options);
SchedulerPtr Make(const OneCycleLR& options);
SchedulerPtr Make(const CyclicLR& options);
SchedulerPtr Make(const SWALR& options);
SchedulerPtr Make(const ReduceLROnPlateau& options);
SchedulerPtr Make(const SequentialLR& options);
SchedulerPtr Make(const ChainedScheduler& options);

}  // namespace lockstep::checkpoint::optim

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_SCHEDULER_H_
