// The options of the learning-rate schedules, with the names and defaults of torch.optim.lr_scheduler. LRScheduler, in
// lr_scheduler.h, runs them.
//
//   Schedule warm_up = SequentialLR{{LinearLR{0.01, 1, 5}, CosineAnnealingLR{85}}, {5}};
//   Schedule one_cycle = OneCycleLR{/*max_lr=*/{0.1}, /*total_steps=*/5000};
//
// An epoch is a call of LRScheduler::Step(): call it after each epoch of the data, or after each step of the optimizer.
// A vector of rates, momenta or functions has one element for all groups of the optimizer, or one for each group.
//
// The comments on options name the values that LRScheduler::Create() accepts. All numbers must be finite, too.

#ifndef LOCKSTEP_CHECKPOINT_OPTIM_SCHEDULES_H_
#define LOCKSTEP_CHECKPOINT_OPTIM_SCHEDULES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lockstep::checkpoint {

// Uses `lr_lambda`(epoch) times the initial rate. As in Python, the functions are not in the state: pass the same
// functions when you resume.
struct LambdaLR {
  std::vector<std::function<double(int64_t epoch)>> lr_lambda;
};

// Multiplies the rate by `lr_lambda`(epoch) at each epoch after the first. The functions are not in the state.
struct MultiplicativeLR {
  std::vector<std::function<double(int64_t epoch)>> lr_lambda;
};

// Multiplies the rate by `gamma` every `step_size` epochs.
struct StepLR {
  int64_t step_size;  // at least 1
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
  int64_t T_max;  // at least 1
  double eta_min = 0;
};

// Lowers the initial rate to `eta_min` along half a cosine, and begins again. The first time lasts `T_0` epochs, and
// each later time `T_mult` times as long as the one before. Step(epoch) takes fractions, for a rate that falls within
// an epoch. The paper is CosineAnnealingLR's.
struct CosineAnnealingWarmRestarts {
  int64_t T_0;         // at least 1
  int64_t T_mult = 1;  // at least 1
  double eta_min = 0;
};

// Changes the rate from `start_factor` to `end_factor` times the initial rate in `total_iters` equal steps.
struct LinearLR {
  double start_factor = 1.0 / 3;  // more than 0 and at most 1
  double end_factor = 1;          // 0 to 1
  int64_t total_iters = 5;        // at least 1
};

// Uses `factor` times the initial rate for the first `total_iters` epochs.
struct ConstantLR {
  double factor = 1.0 / 3;  // more than 0 and at most 1
  int64_t total_iters = 5;  // at least 1
};

// Lowers the initial rate to 0 in `total_iters` epochs: initial * (1 - epoch / total_iters) ^ power.
struct PolynomialLR {
  int64_t total_iters = 5;  // at least 1
  double power = 1;         // 0 or more
};

// Raises the rate from max_lr / div_factor to `max_lr` in a share `pct_start` of the steps, and lowers it to
// max_lr / div_factor / final_div_factor in the rest. With `three_phase` it first falls as it has risen. The optimizer's
// own rate is not used. Steps past the last throw: see LRScheduler::Step(). L. N. Smith, N. Topin, "Super-Convergence:
// Very Fast Training of Neural Networks Using Large Learning Rates", https://arxiv.org/abs/1708.07120.
struct OneCycleLR {
  std::vector<double> max_lr;
  std::optional<int64_t> total_steps = {};                   // at least 1; or else
  std::optional<int64_t> epochs = {}, steps_per_epoch = {};  // each at least 1
  double pct_start = 0.3;                                    // 0 to 1
  std::string anneal_strategy = "cos";                       // or "linear"
  // While the rate rises, lowers the momentum from `max_momentum` to `base_momentum`, and then the reverse. It is the
  // option momentum, or the first of betas. Optimizers that have neither need false.
  bool cycle_momentum = true;
  std::vector<double> base_momentum = {0.85};
  std::vector<double> max_momentum = {0.95};
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
};

// Raises the rate from `base_lr` to `max_lr` in `step_size_up` epochs, lowers it in `step_size_down` (by default as
// many), and begins again. The optimizer's own rate is not used. L. N. Smith, "Cyclical Learning Rates for Training
// Neural Networks", WACV 2017, https://arxiv.org/abs/1506.01186.
struct CyclicLR {
  std::vector<double> base_lr;
  std::vector<double> max_lr;
  int64_t step_size_up = 2000;                 // at least 1
  std::optional<int64_t> step_size_down = {};  // 0 or more
  // "triangular": each cycle has the same height. "triangular2": half the height of the cycle before. "exp_range":
  // gamma ^ epoch of it.
  std::string mode = "triangular";
  double gamma = 1;
  // Scales the height instead of `mode`. Its argument is the number of the cycle, from 1 on, or with `scale_mode` =
  // "iterations" the epoch. It is not in the state.
  std::function<double(double)> scale_fn = {};
  std::string scale_mode = "cycle";
  bool cycle_momentum = true;  // as in OneCycleLR
  std::vector<double> base_momentum = {0.8};
  std::vector<double> max_momentum = {0.9};
};

// Changes the rate to `swa_lr` in `anneal_epochs` epochs, for //optim:averaged_model. It is torch.optim.swa_utils.SWALR.
// P. Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018,
// https://arxiv.org/abs/1803.05407.
struct SWALR {
  std::vector<double> swa_lr;
  int64_t anneal_epochs = 10;           // 0 or more
  std::string anneal_strategy = "cos";  // or "linear"
};

// Multiplies the rate by `factor` when the metric that Step(metric) gets has not improved for more than `patience`
// epochs. A NaN does not improve it.
struct ReduceLROnPlateau {
  std::string mode = "min";  // or "max"
  double factor = 0.1;       // less than 1
  int64_t patience = 10;
  // An improvement is at least this: with "rel" as a share of the best metric, with "abs" as a difference.
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  int64_t cooldown = 0;  // epochs after a reduction in which `patience` does not count
  std::vector<double> min_lr = {0};
  double eps = 1e-8;  // a smaller change of the rate is left out
};

struct SequentialLR;
struct ChainedScheduler;

using Schedule = std::variant<StepLR, MultiStepLR, ExponentialLR, CosineAnnealingLR, LinearLR, ConstantLR, PolynomialLR,
                              LambdaLR, MultiplicativeLR, CosineAnnealingWarmRestarts, OneCycleLR, CyclicLR, SWALR,
                              ReduceLROnPlateau, SequentialLR, ChainedScheduler>;

// Runs schedulers one after the other. schedulers[i + 1] begins at epoch milestones[i], from the initial rate and from
// its own epoch 0. There is one milestone less than schedulers, and milestones ascend from 1. None is a
// ReduceLROnPlateau, and only the first may be a SequentialLR or a ChainedScheduler: Python's cannot begin at a
// milestone.
struct SequentialLR {
  std::vector<Schedule> schedulers;
  std::vector<int64_t> milestones;
};

// Runs schedulers at the same time, each on the rates that the one before it leaves. None is a ReduceLROnPlateau.
struct ChainedScheduler {
  std::vector<Schedule> schedulers;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIM_SCHEDULES_H_
