// Learning-rate schedulers with the names, learning rates and state of torch.optim.lr_scheduler, so that a schedule
// begun in one language can continue in the other. (LibTorch has only StepLR and ReduceLROnPlateau, and cannot save
// them.) schedules.h has the schedules and their options.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(LRScheduler scheduler, LRScheduler::Create(&sgd, StepLR{/*step_size=*/30}));
//   for (; epoch < 90; ++epoch) {
//     ...                                                       // sgd.step() for every batch
//     scheduler.Step();
//   }
//   checkpoint.Set("scheduler", scheduler.StateDict());
//
// Linear warm-up for 5 epochs, then cosine decay for 85:
//
//   LRScheduler::Create(&sgd, SequentialLR{{LinearLR{0.01, 1, 5}, CosineAnnealingLR{85}}, {5}})
//
// Learning rates and momenta equal Python 2.11's bit for bit. As in Python, each epoch's rate is computed from the
// previous one, so if other code changes a group's rate, the change persists. A scheduler sets the rates when it is
// created. To resume, create the scheduler first, then load the optimizer's state, and then the scheduler's state.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_LR_SCHEDULER_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_LR_SCHEDULER_H_

#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/optim/schedules.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

namespace optim {
struct SchedulerState;
}  // namespace optim

// Sets the learning rate of each group of any torch::optim::Optimizer, and for OneCycleLR and CyclicLR its momentum,
// epoch by epoch. The optimizer must outlive the scheduler and must not move. Each rank has a separate scheduler, and
// they agree if their optimizers' rates agree. Not thread-safe. Groups added to the optimizer later keep their rate.
// Groups must not be removed.
class LRScheduler {
 public:
  // Uses the groups' rates as the initial ones, and sets the rates of epoch 0. Python also keeps the initial rate in
  // the group, as "initial_lr", so a second scheduler over the same optimizer begins at the first one's initial rate.
  // C++ groups cannot store it, so here a second scheduler begins at the current rate. To resume in the order above,
  // neither language needs it. For two schedulers at a time, use a ChainedScheduler.
  //
  // InvalidArgument, naming the option and its value: it is not what schedules.h says, or a number is not finite; a
  // vector has neither one element nor one for each group; or cycle_momentum is true, and the optimizer has
  // neither an option momentum nor betas. Errors of reading the optimizer's rate are returned too.
  static absl::StatusOr<LRScheduler> Create(torch::optim::Optimizer* optimizer, const Schedule& schedule);

  // Advances to the next epoch. Call it after the optimizer's steps of this epoch, as in Python. Throws StatusError:
  // OutOfRange, if a OneCycleLR is stepped more than its total steps; InvalidArgument, for a ReduceLROnPlateau, which
  // needs a metric. The optimizer's own step() throws too.
  void Step();

  // Python's step(value). For ReduceLROnPlateau, `value` is the epoch's metric. For other schedules it is the epoch to
  // go to: a fraction of epochs for CosineAnnealingWarmRestarts, and else a whole number, at which the rate is computed
  // from the initial one where the schedule has such a formula. Throws StatusError: InvalidArgument, if it is another
  // number, or for SequentialLR and ChainedScheduler; OutOfRange, past a OneCycleLR's steps.
  void Step(double value);

  LRScheduler(LRScheduler&&) noexcept;
  LRScheduler& operator=(LRScheduler&&) noexcept;
  ~LRScheduler();

  // The rates set last, by group.
  const std::vector<double>& GetLastLr() const;

  // Returns Python's scheduler.state_dict(): {"step_size": 30, "gamma": 0.1, "base_lrs": [0.1], "last_epoch": 4, ...},
  // with the keys of 2.11 in its order.
  Value StateDict() const;

  // Restores a state from StateDict() or Python's state_dict(), including the options, as in Python. Does not change
  // the optimizer's rates, which are part of the optimizer's state. On an error nothing changes. InvalidArgument,
  // naming the key: a key is missing or has a wrong type, for example because it is the state of another schedule;
  // Create() would reject the options; or the number of rates is not the optimizer's number of groups.
  absl::Status LoadStateDict(const Value& state_dict);

  // Python's schedulers keep some numbers in the optimizer's groups, so that its state has them: initial_lr, OneCycleLR's
  // max_lr and min_lr, SWALR's swa_lr, and max_momentum and base_momentum. Returns `optimizer_state`, such as
  // OptimizerStateDict()'s, with them: Python's OneCycleLR and SWALR cannot continue without. InvalidArgument: it is not
  // an optimizer's state.
  absl::StatusOr<Value> AddToOptimizerState(Value optimizer_state) const;

  // Takes these numbers from an optimizer's state, as far as it has them. Call it if the saved run may have been created
  // with other options. On an error nothing changes. InvalidArgument: it is not an optimizer's state.
  absl::Status LoadFromOptimizerState(const Value& optimizer_state);

 private:
  explicit LRScheduler(std::unique_ptr<optim::SchedulerState> state);

  std::unique_ptr<optim::SchedulerState> state_;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_LR_SCHEDULER_H_
