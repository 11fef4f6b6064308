// Learning-rate schedulers with the names, learning rates and state of torch.optim.lr_scheduler, so that a schedule
// begun in one language can continue in the other. (LibTorch has only StepLR and ReduceLROnPlateau, and cannot save
// them.)
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
// Learning rates equal Python 2.11's bit for bit. As in Python, each epoch's rate is computed from the previous
// one, so if other code changes a group's rate, the change persists. A scheduler sets the rates when it is created. To
// resume, create the scheduler first, then load the optimizer's state, and then the scheduler's state.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_LR_SCHEDULER_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_LR_SCHEDULER_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Multiplies the rate by `gamma` every `step_size` epochs.
struct StepLR {
  int64_t step_size;
  double gamma = 0.1;
};

// Multiplies the rate by `gamma` at each epoch of `milestones`, in any order. A milestone that occurs n times counts n
// times.
struct MultiStepLR {
  std::vector<int64_t> milestones;
  double gamma = 0.1;
};

// Multiplies the rate by `gamma` every epoch.
struct ExponentialLR {
  double gamma;
};

// Lowers the initial rate to `eta_min` in `T_max` epochs along half a cosine, and raises it again in the next `T_max`.
// I. Loshchilov, F. Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017,
// https://arxiv.org/abs/1608.03983, without the restarts.
struct CosineAnnealingLR {
  int64_t T_max;
  double eta_min = 0;
};

// Changes the rate from `start_factor` to `end_factor` times the initial rate in `total_iters` equal steps.
struct LinearLR {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
};

// Uses `factor` times the initial rate for the first `total_iters` epochs.
struct ConstantLR {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
};

using Schedule = std::variant<StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR, LinearLR, ConstantLR>;

// Runs schedulers one after the other. schedulers[i + 1] begins at epoch milestones[i], from the initial rate and from
// its own epoch 0.
struct SequentialLR {
  std::vector<Schedule> schedulers;
  std::vector<int64_t> milestones;
};

namespace optim {
struct SequenceState;
}  // namespace optim

// Sets the learning rate of each group of any torch::optim::Optimizer, epoch by epoch. The optimizer must outlive the
// scheduler and must not move. Each rank has a separate scheduler, and they agree if their optimizers' rates agree. Not
// thread-safe. Groups added to the optimizer later keep their rate. Groups must not be removed.
class LRScheduler {
 public:
  // Uses the groups' rates as the initial ones, and sets the rates of epoch 0. Python also keeps the initial rate in
  // the group, as "initial_lr", so a second scheduler over the same optimizer begins at the first one's initial rate.
  // C++ groups cannot store it, so here a second scheduler begins at the current rate. To resume in the order above,
  // neither language needs it.
  //
  // InvalidArgument, naming the option and its value: step_size, T_max or total_iters is below 1; a factor is outside
  // (0, 1] (end_factor may be 0); an option is not finite; schedulers are missing; there is not exactly one milestone
  // less than schedulers; or milestones do not ascend from 1. Errors of reading the optimizer's rate are returned too.
  static absl::StatusOr<LRScheduler> Create(torch::optim::Optimizer* optimizer, const Schedule& schedule);
  static absl::StatusOr<LRScheduler> Create(torch::optim::Optimizer* optimizer, const SequentialLR& schedule);

  // Advances to the next epoch. Call it after the optimizer's steps of this epoch, as in Python.
  void Step();

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

 private:
  LRScheduler(torch::optim::Optimizer* optimizer, bool sequential, optim::SequenceState state);

  static absl::StatusOr<LRScheduler> Make(torch::optim::Optimizer* optimizer, const SequentialLR& schedule,
                                          bool sequential);

  torch::optim::Optimizer* optimizer_;
  bool sequential_;
  std::unique_ptr<optim::SequenceState> state_;  // has one schedule if this is not a SequentialLR
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_LR_SCHEDULER_H_
