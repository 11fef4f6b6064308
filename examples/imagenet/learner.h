// The network of one rank and all that steps it.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_

#include <c10/core/Device.h>
#include <torch/data/example.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/lr_scheduler.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/models/image_classifier.h"

namespace lockstep::examples::imagenet {

// What a batch came to on this rank.
struct BatchResult {
  double loss = 0;  // mean over its images
  int64_t images = 0;
  int64_t in_top1 = 0;
  int64_t in_top5 = 0;
};

// Network, DDP, SGD, learning-rate schedule, mixed precision, gradient accumulation and the average of weights:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto learner, Learner::Create(config, num_classes, device));
//   LOCKSTEP_RETURN_IF_ERROR(learner->Distribute(group));
//   for (epochs) {
//     for (batches) LOCKSTEP_ASSIGN_OR_RETURN(const BatchResult result, learner->Train(batch, /*parts=*/1, true));
//     learner->EndEpoch();
//   }
//
// Errors of LibTorch come as TorchStatus() gives them. For one thread.
class Learner {
 public:
  // Draws the initial weights from LibTorch's default generator. InvalidArgument: --amp=fp16 without a GPU, --mkldnn
  // with one; else what models::Make says.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(const TrainConfig& config, int64_t num_classes,
                                                         c10::Device device);
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // From here on ranks train together, from rank 0's weights: every rank must call it, and then Train() equally often.
  // Without a group (nullptr) it does nothing.
  absl::Status Distribute(comm::ProcessGroup* group);

  // Forward and backward of one of the `parts` batches of a step of the optimizer, which the `last` of them takes. The
  // step is that of all their images together, where they are equally many.
  absl::StatusOr<BatchResult> Train(const torch::data::Example<>& batch, int64_t parts, bool last);

  // Gives every rank rank 0's BatchNorm statistics, which are the ones that a checkpoint has; each rank has its own
  // after a step. Every rank must call it.
  absl::Status BeginEvaluation();
  // Of the network in evaluation, or of the average of weights where there is one; the loss without label smoothing. No
  // collective.
  absl::StatusOr<BatchResult> Evaluate(const torch::data::Example<>& batch);

  // To the next epoch's learning rate.
  void EndEpoch() { scheduler_.Step(); }
  double lr() const { return scheduler_.GetLastLr()[0]; }

  models::ImageClassifier& net() { return net_; }
  c10::Device device() const { return device_; }
  // Of parameters and buffers, the optimizer's state and the average of weights.
  int64_t StateBytes() const;

  // state_dict, optimizer, scheduler and, where there is such a thing, scaler, model_ema and bucket_layout: entries of
  // a checkpoint, which share its memory.
  absl::StatusOr<std::vector<checkpoint::Value::Entry>> State() const;
  // Takes them from a checkpoint, Python's too, in which scaler, model_ema and bucket_layout may be missing; before
  // Distribute().
  absl::Status Restore(const checkpoint::Value& file);
  // Of these the state_dict and model_ema alone, for what does not train on.
  absl::Status RestoreWeights(const checkpoint::Value& file);

 private:
  Learner(const TrainConfig& config, c10::Device device, models::ImageClassifier net,
          std::unique_ptr<torch::optim::SGD> optimizer, checkpoint::LRScheduler scheduler,
          std::optional<ddp::GradScaler> scaler);

  torch::data::Example<> OnDevice(const torch::data::Example<>& batch) const;
  at::Tensor Loss(const at::Tensor& logits, const at::Tensor& target, double label_smoothing) const;
  absl::StatusOr<BatchResult> ForwardBackward(const torch::data::Example<>& batch, int64_t parts, bool last);
  absl::Status Step();
  absl::Status StartAverage();

  const TrainConfig config_;
  const c10::Device device_;
  models::ImageClassifier net_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  checkpoint::LRScheduler scheduler_;  // of *optimizer_
  std::optional<ddp::GradScaler> scaler_;
  models::ImageClassifier average_{nullptr};
  comm::ProcessGroup* group_ = nullptr;  // once distributed
  std::optional<ddp::DistributedDataParallel<models::ImageClassifier>> ddp_;
  std::optional<checkpoint::Value> buckets_;  // of ddp_ when the checkpoint was saved that was restored
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_
