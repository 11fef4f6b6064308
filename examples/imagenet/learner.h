// The network of one rank, its optimizer and everything else that steps it.

#ifndef LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_
#define LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_

#include <ATen/core/grad_mode.h>
#include <c10/core/Device.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/data/example.h"
#include "lockstep/ddp/amp/autocast.h"
#include "lockstep/ddp/amp/grad_scaler.h"
#include "lockstep/ddp/amp/grad_scaler_value.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/examples/imagenet/config.h"
#include "lockstep/examples/imagenet/meters.h"
#include "lockstep/examples/imagenet/optimizers.h"
#include "lockstep/examples/imagenet/rate_schedule.h"
#include "lockstep/examples/program/pretrained.h"
#include "lockstep/models/channels_last.h"
#include "lockstep/models/image_classifier.h"
#include "lockstep/models/registry.h"
#include "lockstep/optim/averaged_model.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::examples::imagenet {

// Combines network, DDP, optimizer, learning-rate schedule, mixed precision, gradient accumulation and the average of
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
  // with one. Other errors come from models::Make and RateSchedule.
  static absl::StatusOr<std::unique_ptr<Learner>> Create(const TrainConfig& config, int64_t num_classes,
                                                         int64_t steps_per_epoch, c10::Device device) {
    if (config.mkldnn && !device.is_cpu()) return absl::InvalidArgumentError("--mkldnn is for the CPU");
    if (config.amp == "fp16" && device.is_cpu()) {
      return absl::InvalidArgumentError("--amp=fp16 needs a GPU; on the CPU there is --amp=bf16");
    }
    std::unique_ptr<Learner> learner(new Learner(config, device));
    if (config.amp == "fp16") {
      LOCKSTEP_ASSIGN_OR_RETURN(learner->scaler_, ddp::GradScaler::Create());
    }
    LOCKSTEP_RETURN_IF_ERROR(learner->MakeNet(num_classes));
    const OptimizerFlags flags = {config.lr, config.momentum, config.weight_decay};
    LOCKSTEP_ASSIGN_OR_RETURN(learner->optimizer_, TorchStatusOr("--optimizer", [&] {
                                return MakeOptimizer(config.optimizer, flags, learner->net_->parameters());
                              }));
    LOCKSTEP_ASSIGN_OR_RETURN(learner->rates_,
                              RateSchedule::Create(learner->optimizer_.get(), config, steps_per_epoch));
    return learner;
  }
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  // Makes `world` keep the learner's state. `world` must not outlive this learner.
  absl::Status KeepIn(elastic::World& world) {
    LOCKSTEP_RETURN_IF_ERROR(world.Keep("net", *net_));
    LOCKSTEP_RETURN_IF_ERROR(world.Keep("optimizer", *optimizer_));
    LOCKSTEP_RETURN_IF_ERROR(world.Keep("scheduler", *rates_));
    if (scaler_) LOCKSTEP_RETURN_IF_ERROR(world.Keep("scaler", *scaler_));
    if (!average_) return absl::OkStatus();
    // The average is not kept as a module, whose buffers the ranks exchange in each step: its buffers are equal.
    const auto save = [this]() -> absl::StatusOr<Value> { return checkpoint::StateDict(*average_->module()); };
    return world.Keep("model_ema", save,
                      [this](const Value& value) { return checkpoint::LoadStateDict(*average_->module(), value); });
  }

  // From here on the ranks of `group` train together. Their weights are equal already, or Begin() makes them equal. A
  // single rank needs no DDP, unless there are virtual ranks. Without a group (nullptr) each rank trains alone. Every
  // rank must call it, may call it again with another group, and must call Leave() before a group ends.
  absl::Status Distribute(comm::ProcessGroup* group) {
    ddp_.reset();
    optimizer_->zero_grad();  // another group may have left gradients of a step that it did not complete
    if (!group || (group->size() == 1 && config_.virtual_ranks == 0)) return absl::OkStatus();
    ddp::Options options;
    options.virtual_ranks = config_.virtual_ranks;
    options.virtual_seed = config_.seed.value_or(0);
    LOCKSTEP_ASSIGN_OR_RETURN(ddp_, elastic::Wrap(net_, group, options));
    group_ = group;
    if (!buckets_) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const ddp::BucketLayout layout, ddp::ToBucketLayout(*buckets_, group->size()));
    return ddp_->RestoreBucketLayout(layout);
  }
  void Leave() {
    ddp_.reset();
    group_ = nullptr;
    buckets_.reset();  // a rank that comes does not have them
  }

  // Begins a run: all ranks get rank 0's weights, and the average of weights starts at them, unless Restore() has read
  // it from a checkpoint. Call it on every rank, after Distribute().
  absl::Status Begin() {
    LOCKSTEP_RETURN_IF_ERROR(TakeFromRankZero(net_->parameters()));
    LOCKSTEP_RETURN_IF_ERROR(TakeFromRankZero(net_->buffers()));
    if (!average_ || average_is_restored_) return absl::OkStatus();
    return checkpoint::LoadStateDict(*average_->module(), checkpoint::StateDict(*net_));
  }

  // Calls `train` for each virtual rank of this rank, in order, for step number `step` of the optimizer. Without
  // --virtual-ranks that is once. `train` calls Train(). Returns its error.
  absl::Status ForEachVirtualRank(int64_t step, const std::function<absl::Status(int virtual_rank)>& train) {
    if (!ddp_) return train(0);
    return TorchStatus("", [&] {
      for (const int virtual_rank : ddp_->VirtualRanks(step)) ThrowIfError(train(virtual_rank));
    });
  }

  // Runs forward and backward of one of the `parts` batches of a virtual rank in a step. With `last`, the gradients are
  // averaged over the virtual ranks. If the batches have equal sizes, the step is that of all their images together.
  absl::StatusOr<BatchResult> Train(const data::Example& batch, int64_t parts, bool last) {
    return TorchStatusOr("", [&] {
      net_->train();
      if (config_.freeze_backbone) KeepAverages();
      std::optional<ddp::NoSync> no_sync;
      if (ddp_ && !last) no_sync.emplace(*ddp_);
      const data::Example example = OnDevice(batch);
      at::Tensor logits, loss;
      {
        const ddp::Autocast autocast = MakeAutocast();
        logits = ddp_ ? (*ddp_)(example.data) : net_(example.data);
        loss = Loss(logits, example.target, config_.label_smoothing);
      }
      const at::Tensor part = parts == 1 ? loss : loss / parts;
      (scaler_ ? scaler_->Scale(part) : part).backward();  // under DDP gradients are averaged in here
      return ResultOf(loss.detach(), logits.detach(), example.target);
    });
  }

  // Takes a step of the optimizer, after ForEachVirtualRank(). It is not collective.
  absl::Status StepOptimizer() {
    if (scaler_) {
      LOCKSTEP_RETURN_IF_ERROR(scaler_->Step(*optimizer_).status());
      LOCKSTEP_RETURN_IF_ERROR(scaler_->Update());
    }
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
      if (!scaler_) optimizer_->step();
      optimizer_->zero_grad();
      if (average_) average_->UpdateParameters(*net_);
    }));
    return rates_->EndStep();
  }

  // Gives every rank rank 0's BatchNorm statistics, which are also those in a checkpoint; after a step each rank has
  // different ones. Every rank must call it.
  absl::Status BeginEvaluation() { return TakeFromRankZero(evaluated()->buffers()); }

  // Evaluates the network, or the average of weights if there is one. The loss is without label smoothing. The function
  // is not collective.
  absl::StatusOr<BatchResult> Evaluate(const data::Example& batch) {
    return TorchStatusOr("", [&] {
      const at::NoGradGuard no_grad;
      models::ImageClassifier net = evaluated();
      net->eval();
      const data::Example example = OnDevice(batch);
      const ddp::Autocast autocast = MakeAutocast();
      const at::Tensor logits = net(example.data);
      return ResultOf(Loss(logits, example.target, /*label_smoothing=*/0), logits, example.target);
    });
  }

  // The learning rate. StepOptimizer() ends its steps, and the caller its epochs.
  RateSchedule& rates() { return *rates_; }

  models::ImageClassifier& net() { return net_; }
  c10::Device device() const { return device_; }

  // The bytes of parameters and buffers, the optimizer's state and the average of weights.
  int64_t StateBytes() const {
    int64_t parameters = 0, buffers = 0;
    for (const at::Tensor& tensor : net_->parameters()) parameters += static_cast<int64_t>(tensor.nbytes());
    for (const at::Tensor& tensor : net_->buffers()) buffers += static_cast<int64_t>(tensor.nbytes());
    return (parameters + buffers) * (average_ ? 2 : 1) + OptimizerBytes();
  }

  // Entries for a checkpoint, which share the learner's memory: state_dict, optimizer, scheduler and, if they exist,
  // scaler, model_ema and, without virtual ranks, bucket_layout.
  absl::StatusOr<std::vector<checkpoint::Value::Entry>> State() const {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, checkpoint::OptimizerStateDict(*optimizer_));
    std::vector<Value::Entry> entries = {
        {"state_dict", checkpoint::StateDict(*net_)}, {"optimizer", optimizer}, {"scheduler", rates_->StateDict()}};
    if (scaler_) entries.push_back({"scaler", ToValue(scaler_->State())});
    if (average_) entries.push_back({"model_ema", checkpoint::StateDict(*average_->module())});
    const bool buckets_matter = ddp_ && config_.virtual_ranks == 0;
    if (buckets_matter) entries.push_back({"bucket_layout", ddp::ToValue(ddp_->bucket_layout(), group_->size())});
    return entries;
  }

  // Restores these entries from a checkpoint, which may be Python's. scaler, model_ema and bucket_layout may be
  // missing. Call it before Distribute() and Begin().
  absl::Status Restore(const checkpoint::Value& file) {
    LOCKSTEP_RETURN_IF_ERROR(RestoreWeights(file));
    if (const Value* const buckets = file.Find("bucket_layout"); buckets) buckets_ = *buckets;
    LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, checkpoint::GetDict(file, "optimizer"));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(*optimizer_, optimizer));
    LOCKSTEP_ASSIGN_OR_RETURN(const Value scheduler, checkpoint::GetDict(file, "scheduler"));
    LOCKSTEP_RETURN_IF_ERROR(rates_->LoadStateDict(scheduler));
    const Value* const scaler = file.Find("scaler");
    if (!scaler || !scaler_) return absl::OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const ddp::GradScalerState state, ddp::ToGradScalerState(*scaler));
    return scaler_->LoadState(state);
  }

  // Restores only state_dict and model_ema, for evaluation.
  absl::Status RestoreWeights(const checkpoint::Value& file) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::GetDict(file, "state_dict"));
    checkpoint::LoadStateDictOptions options;
    options.remove_prefix = checkpoint::FindPrefix(*net_, state_dict);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadStateDict(*net_, state_dict, options));
    const Value* const average = file.Find("model_ema");
    if (!average || !average_) return absl::OkStatus();
    average_is_restored_ = true;
    return checkpoint::LoadStateDict(*average_->module(), *average);
  }

 private:
  using Value = checkpoint::Value;

  Learner(const TrainConfig& config, c10::Device device) : config_(config), device_(device) {}

  // SGD's momentum begins with the first step.
  int64_t OptimizerBytes() const {
    const bool later = config_.optimizer == "sgd" && config_.momentum != 0;
    const auto& options = static_cast<const optim::Options&>(optimizer_->param_groups()[0].options());
    int64_t bytes = 0;
    for (const at::Tensor& parameter : net_->parameters()) {
      if (later) bytes += static_cast<int64_t>(parameter.nbytes());
      for (const at::Tensor& tensor : optimizer_->NewState(parameter, options)->tensors)
        bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
    }
    return bytes;
  }

  // With --freeze-backbone, only the last layer learns.
  absl::Status MakeNet(int64_t num_classes) {
    LOCKSTEP_ASSIGN_OR_RETURN(net_, models::Make(config_.arch, num_classes, models::BatchNorm, config_.dropout));
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus(config_.arch, [&] {
      net_->to(device_);
      if (config_.channels_last) models::ToChannelsLast(*net_);
      const std::string last_layer = LastLayer(*net_) + ".";
      for (const auto& parameter : net_->named_parameters()) {
        const bool learns = !config_.freeze_backbone || absl::StartsWith(parameter.key(), last_layer);
        parameter.value().set_requires_grad(learns);
      }
    }));
    return config_.ema_decay == 0 ? absl::OkStatus() : MakeAverage();
  }

  // The average moves from the weights that it begins with. It takes counters as they are.
  absl::Status MakeAverage() {
    optim::AveragedModelOptions options;
    options.use_buffers = true;
    options.multi_avg_fn = [move = optim::GetEmaMultiAvgFn(config_.ema_decay)](const std::vector<at::Tensor>& averages,
                                                                               const std::vector<at::Tensor>& now,
                                                                               const at::Tensor& updates) {
      if (averages[0].is_floating_point()) return move(averages, now, updates);
      for (size_t i = 0; i < averages.size(); ++i) averages[i].copy_(now[i]);
    };
    LOCKSTEP_ASSIGN_OR_RETURN(average_, optim::AveragedModel::Create(*net_, std::move(options)));
    return TorchStatus("", [&] { average_->UpdateParameters(*net_); });
  }

  models::ImageClassifier evaluated() const {
    return average_ ? models::ImageClassifier(average_->module<models::ImageClassifierImpl>()) : net_;
  }

  // Without a group this rank is the only one.
  absl::Status TakeFromRankZero(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (group_) LOCKSTEP_RETURN_IF_ERROR(group_->Broadcast(tensor.detach(), /*root=*/0));
    }
    return absl::OkStatus();
  }

  // Makes BatchNorm normalise with its averages, and not update them.
  void KeepAverages() {
    for (const std::shared_ptr<torch::nn::Module>& module : net_->modules()) {
      if (auto* const norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->eval();
    }
  }

  data::Example OnDevice(const data::Example& batch) const {
    const auto format = config_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    const at::Tensor images = batch.data.to(device_, /*non_blocking=*/true).contiguous(format);
    return {config_.mkldnn ? images.to_mkldnn() : images, batch.target.to(device_, /*non_blocking=*/true)};
  }

  ddp::Autocast MakeAutocast() const {
    return ddp::Autocast(device_.type(), config_.amp == "fp16" ? at::kHalf : at::kBFloat16, !config_.amp.empty());
  }

  static at::Tensor Loss(const at::Tensor& logits, const at::Tensor& target, double label_smoothing) {
    return torch::nn::functional::cross_entropy(
        logits, target, torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(label_smoothing));
  }

  static BatchResult ResultOf(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& target) {
    return {.loss = loss.item<double>(),
            .images = target.size(0),
            .in_top1 = CountInTopK(logits, target, 1),
            .in_top5 = CountInTopK(logits, target, 5)};
  }

  const TrainConfig config_;
  const c10::Device device_;
  models::ImageClassifier net_{nullptr};
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<RateSchedule> rates_;
  std::optional<ddp::GradScaler> scaler_;
  std::shared_ptr<optim::AveragedModel> average_;  // null without --ema-decay
  bool average_is_restored_ = false;
  // These two end with a group.
  comm::ProcessGroup* group_ = nullptr;
  std::optional<ddp::DistributedDataParallel<models::ImageClassifier>> ddp_;
  std::optional<checkpoint::Value> buckets_;  // from the restored checkpoint, for the first group
};

}  // namespace lockstep::examples::imagenet

#endif  // LOCKSTEP_EXAMPLES_IMAGENET_LEARNER_H_
