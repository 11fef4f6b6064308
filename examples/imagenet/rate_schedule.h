// The learning-rate schedule that --schedule and the warm-up's flags name.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_RATE_SCHEDULE_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_RATE_SCHEDULE_H_

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/lr_scheduler.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/examples/imagenet/config.h"

namespace lockstep::examples::imagenet {

// Advances at the end of each epoch, or, with --warmup-steps or --schedule=one_cycle, of each step of the optimizer.
class RateSchedule {
 public:
  // `optimizer` is borrowed and has --lr. `steps_per_epoch` is at least 1. InvalidArgument: the warm-up has more
  // steps than the run.
  static absl::StatusOr<RateSchedule> Create(torch::optim::Optimizer* optimizer, const TrainConfig& config,
                                             int64_t steps_per_epoch) {
    const bool by_step = config.warmup_steps > 0 || config.schedule == "one_cycle";
    const int64_t unit = by_step ? steps_per_epoch : 1;
    if (config.warmup_steps > 0 && config.warmup_steps >= config.epochs * unit) {
      return FlagError("warmup-steps", config.warmup_steps,
                       absl::StrCat("less than the ", config.epochs * unit, " steps of the run"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(checkpoint::LRScheduler scheduler,
                              checkpoint::LRScheduler::Create(optimizer, WithWarmup(config, unit)));
    return RateSchedule(std::move(scheduler), by_step ? steps_per_epoch : 0, config.schedule == "plateau");
  }

  // If ranks have died, an epoch may have more steps than before. Then the last rate of a one_cycle stays.
  absl::Status EndStep() {
    lr_ = scheduler_.GetLastLr()[0];
    if (steps_per_epoch_ == 0) return absl::OkStatus();
    const absl::Status status = TorchStatus("", [&] { scheduler_.Step(); });
    return absl::IsOutOfRange(status) ? absl::OkStatus() : status;
  }
  // `acc1` is the validation's.
  void EndEpoch(double acc1) {
    if (needs_metric_) {
      scheduler_.Step(acc1);
    } else if (steps_per_epoch_ == 0) {
      scheduler_.Step();
    }
    lr_ = scheduler_.GetLastLr()[0];
  }
  // Advances by an epoch that is not trained. It has no metric.
  absl::Status SkipEpoch() {
    if (needs_metric_) return absl::OkStatus();
    for (int64_t step = 0; step < steps_per_epoch_; ++step) LOCKSTEP_RETURN_IF_ERROR(EndStep());
    EndEpoch(/*acc1=*/0);
    return absl::OkStatus();
  }

  // The rate of the optimizer's last step, or of the first step of an epoch before it.
  double lr() const { return lr_; }

  checkpoint::Value StateDict() const { return scheduler_.StateDict(); }
  absl::Status LoadStateDict(const checkpoint::Value& state_dict) {
    LOCKSTEP_RETURN_IF_ERROR(scheduler_.LoadStateDict(state_dict));
    lr_ = scheduler_.GetLastLr()[0];
    return absl::OkStatus();
  }

 private:
  RateSchedule(checkpoint::LRScheduler scheduler, int64_t steps_per_epoch, bool needs_metric)
      : scheduler_(std::move(scheduler)),
        steps_per_epoch_(steps_per_epoch),
        needs_metric_(needs_metric),
        lr_(scheduler_.GetLastLr()[0]) {}

  // Returns the schedule after the warm-up, of `length` advances, of which an epoch has `unit`.
  static checkpoint::Schedule Named(const TrainConfig& config, int64_t length, int64_t unit) {
    if (config.schedule == "cosine") return checkpoint::CosineAnnealingLR{length};
    if (config.schedule == "linear") return checkpoint::LinearLR{1, 0, length};
    if (config.schedule == "polynomial") return checkpoint::PolynomialLR{length, /*power=*/2};
    if (config.schedule == "warm_restarts") return checkpoint::CosineAnnealingWarmRestarts{30 * unit};
    if (config.schedule == "one_cycle") return checkpoint::OneCycleLR{{config.lr}, length};
    if (config.schedule == "plateau") return checkpoint::ReduceLROnPlateau{"max"};
    return checkpoint::StepLR{/*step_size=*/30 * unit};
  }

  // Warm-up begins at a hundredth of the rate, as torchvision's reference training does.
  static checkpoint::Schedule WithWarmup(const TrainConfig& config, int64_t unit) {
    const int64_t warmup = config.warmup_steps > 0 ? config.warmup_steps : config.warmup_epochs;
    const int64_t length = config.epochs * unit - warmup;
    if (warmup == 0) return Named(config, length, unit);
    const checkpoint::LinearLR rise = {0.01, 1, warmup};
    return checkpoint::SequentialLR{{rise, Named(config, length, unit)}, {warmup}};
  }

  checkpoint::LRScheduler scheduler_;
  int64_t steps_per_epoch_;  // 0 if it advances by epochs
  bool needs_metric_;
  double lr_;
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_RATE_SCHEDULE_H_
