// Learning-rate schedulers with torch.optim.lr_scheduler's names, learning rates and state, so that a schedule begun in
// one language goes on in the other. (LibTorch has StepLR and ReduceLROnPlateau only, and no way to save them.)
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
// Learning rates are those of Python 2.11 to the bit. Like Python's, the formulas take one epoch's rate from the last
// epoch's, so whatever else changes a group's rate carries on; and a scheduler sets its rates when it is made, so on
// resuming make it first, then load the optimizer's state, then the scheduler's.

#ifndef LOCKSTEP_CHECKPOINT_LR_SCHEDULER_H_
#define LOCKSTEP_CHECKPOINT_LR_SCHEDULER_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Times `gamma` every `step_size` epochs.
struct StepLR {
  int64_t step_size;
  double gamma = 0.1;
};

// Times `gamma` at each of `milestones`, epochs in any order; one that is there n times counts n times.
struct MultiStepLR {
  std::vector<int64_t> milestones;
  double gamma = 0.1;
};

// Times `gamma` every epoch.
struct ExponentialLR {
  double gamma;
};

// From the initial rate down to `eta_min` in `T_max` epochs along half a cosine, and back up in as many. I. Loshchilov,
// F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, https://arxiv.org/abs/1608.03983,
// without the restarts.
struct CosineAnnealingLR {
  int64_t T_max;
  double eta_min = 0;
};

// From `start_factor` times the initial rate to `end_factor` times it in `total_iters` equal steps.
struct LinearLR {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
};

// `factor` times the initial rate for the first `total_iters` epochs.
struct ConstantLR {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};

using Schedule = std::variant<StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR, LinearLR, ConstantLR>;

// One after the other: schedulers[i + 1] begins, from the initial rate and its own epoch 0, at epoch milestones[i].
struct SequentialLR {
  std::vector<Schedule> schedulers;
  std::vector<int64_t> milestones;
};

namespace internal {

// What Python's scheduler objects keep.
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

}  // namespace internal

// Sets the learning rate of each of an optimizer's groups, any torch::optim::Optimizer's, epoch by epoch. The optimizer
// must outlive it, at its address. Each rank has its own, and they agree if their optimizers' rates do. One thread uses
// it at a time. Groups that are added to the optimizer later keep their own rate; none
// may be taken away.
class LRScheduler {
 public:
  // Takes the groups' rates as the initial ones and sets those of epoch 0. Python also keeps the initial rate in the
  // group, as "initial_lr", so that its second scheduler over one optimizer begins where the first began; C++ groups
  // have no such place, and here it begins at the rate it finds. Neither needs it to resume in the order above.
  //
  // InvalidArgument, naming the option and its value: step_size, T_max or total_iters below 1; a factor outside (0, 1]
  // (an end_factor may be 0); an option that is not finite; no schedulers, other than one milestone less than
  // schedulers, or milestones that do not ascend from 1 on. Otherwise the error of reading the optimizer's rate.
  static absl::StatusOr<LRScheduler> Create(torch::optim::Optimizer* optimizer, const Schedule& schedule);
  static absl::StatusOr<LRScheduler> Create(torch::optim::Optimizer* optimizer, const SequentialLR& schedule);

  // The next epoch. After the optimizer's steps of this one, as in Python.
  void Step();

  // The rates that were last set, by group.
  const std::vector<double>& GetLastLr() const { return state_.last_lr; }

  // Python's scheduler.state_dict(): {"step_size": 30, "gamma": 0.1, "base_lrs": [0.1], "last_epoch": 4, ...}, with the
  // keys of 2.11 in its order.
  Value StateDict() const;

  // Restores what StateDict() or Python's state_dict() gave, the options too, as in Python. The optimizer's rates are
  // left alone: they are in the optimizer's state. All or nothing. InvalidArgument, naming the key: one missing or of a
  // wrong type, as those of another schedule are, options that Create() refuses, or rates for other than the
  // optimizer's number of groups.
  absl::Status LoadStateDict(const Value& state_dict);

 private:
  LRScheduler(torch::optim::Optimizer* optimizer, bool sequential, internal::SequenceState state)
      : optimizer_(optimizer), sequential_(sequential), state_(std::move(state)) {}

  static absl::StatusOr<LRScheduler> Make(torch::optim::Optimizer* optimizer, const SequentialLR& schedule,
                                          bool sequential);

  torch::optim::Optimizer* optimizer_;
  bool sequential_;
  internal::SequenceState state_;  // of one schedule, where this is no SequentialLR
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_LR_SCHEDULER_H_
