// The network of one rank, its optimizer and everything else that steps it.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_

#include <c10/core/Device.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/optim/lr_scheduler.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/example.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/world.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/models/image_classifier.h"

namespace lockstep::examples::imagenet {

// Combines network, DDP, SGD, learning-rate schedule, mixed precision, gradient accumulation and the average of
// weights. After Create(), Distribute() and Begin(), this is a step:
//
//   const auto train = [&](int virtual_rank) { return learner->Train(batch, /*parts=*/1, /*last=*/true).status(); };
//   LOCKSTEP_RETURN_IF_ERROR(learner->ForEachVirtualRank(step, train));
//   LOCKSTEP_RETURN_IF_ERROR(learner->StepOptimizer());
//
// Errors of LibTorch are converted by TorchStatus(). Not thread-safe.
class Learner {
 public:
  // Draws the initial weights from LibTorch's default generator. InvalidArgument: --amp=fp16 without a GPU, or --mkldnn
  // with one. Other errors come from models::Make.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(const TrainConfig& config, int64_t num_classes,
                                                         c10::Device device);
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // Makes `world` keep the learner's state. `world` must not outlive this learner.
  absl::Status KeepIn(elastic::World& world);

  // From here on the ranks of `group` train together. Their weights are equal already, or Begin() makes them equal. A
  // single rank needs no DDP, unless there are virtual ranks. Without a group (nullptr) each rank trains alone. Every
  // rank must call it, may call it again with another group, and must call Leave() before a group ends.
  absl::Status Distribute(comm::ProcessGroup* group);
  void Leave();

  // Begins a run: all ranks get rank 0's weights, and the average of weights starts at them, unless Restore() has read
  // it from a checkpoint. Call it on every rank, after Distribute().
  absl::Status Begin();

  // Calls `train` for each virtual rank of this rank, in order, for step number `step` of the optimizer. Without
  // --virtual-ranks that is once. `train` calls Train(). Returns its error.
  absl::Status ForEachVirtualRank(int64_t step, const std::function<absl::Status(int virtual_rank)>& train);

  // Takes a step of the optimizer, after ForEachVirtualRank(). It is not collective.
  absl::Status StepOptimizer();

  // Runs forward and backward of one of the `parts` batches of a virtual rank in a step. With `last`, the gradients are
  // averaged over the virtual ranks. If the batches have equal sizes, the step is that of all their images together.
  absl::StatusOr<BatchResult> Train(const data::Example& batch, int64_t parts, bool last);

  // Gives every rank rank 0's BatchNorm statistics, which are also those in a checkpoint; after a step each rank has
  // different ones. Every rank must call it.
  absl::Status BeginEvaluation();
  // Evaluates the network, or the average of weights if there is one. The loss is without label smoothing. The function
  // is not collective.
  absl::StatusOr<BatchResult> Evaluate(const data::Example& batch);

  // Sets the next epoch's learning rate.
  void EndEpoch() { scheduler_.Step(); }
  double lr() const { return scheduler_.GetLastLr()[0]; }

  models::ImageClassifier& net() { return net_; }
  c10::Device device() const { return device_; }
  // The bytes of parameters and buffers, the optimizer's state and the average of weights.
  int64_t StateBytes() const;

  // Entries for a checkpoint, which share the learner's memory: state_dict, optimizer, scheduler and, if they exist,
  // scaler, model_ema and, without virtual ranks, bucket_layout.
  absl::StatusOr<std::vector<checkpoint::Value::Entry>> State() const;
  // Restores these entries from a checkpoint, which may be Python's. scaler, model_ema and bucket_layout may be
  // missing. Call it before Distribute() and Begin().
  absl::Status Restore(const checkpoint::Value& file);
  // Restores only state_dict and model_ema, for evaluation.
  absl::Status RestoreWeights(const checkpoint::Value& file);

 private:
  Learner(const TrainConfig& config, c10::Device device, models::ImageClassifier net,
          std::unique_ptr<torch::optim::SGD> optimizer, checkpoint::LRScheduler scheduler,
          std::optional<ddp::GradScaler> scaler);

  data::Example OnDevice(const data::Example& batch) const;
  ddp::Autocast MakeAutocast() const;

  const TrainConfig config_;
  const c10::Device device_;
  models::ImageClassifier net_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  checkpoint::LRScheduler scheduler_;
  std::optional<ddp::GradScaler> scaler_;
  models::ImageClassifier average_{nullptr};  // null without --ema-decay
  bool average_is_restored_ = false;
  // These two end with a group.
  comm::ProcessGroup* group_ = nullptr;
  std::optional<ddp::DistributedDataParallel<models::ImageClassifier>> ddp_;
  std::optional<checkpoint::Value> buckets_;  // from the restored checkpoint, for the first group
};

// Sets average = decay * average + (1 - decay) * now, for every parameter and floating-point buffer. Other buffers are
// copied. `average` and `now` must be modules of the same kind. If the ranks' weights are equal, so are their averages.
void UpdateAverage(torch::nn::Module& average, const torch::nn::Module& now, double decay);

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_
