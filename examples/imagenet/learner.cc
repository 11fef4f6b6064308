#include "lockstep/examples/imagenet/learner.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/optim/optimizer.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/ddp/amp/grad_scaler_value.h"
#include "lockstep/ddp/bucket_layout_value.h"
#include "lockstep/ddp/no_sync.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/examples/program/pretrained.h"
#include "lockstep/models/channels_last.h"
#include "lockstep/models/registry.h"

namespace lockstep::examples::imagenet {
namespace {

using checkpoint::LRScheduler;
using checkpoint::Value;

// Warm-up begins at a hundredth of the rate, as torchvision's reference training does.
absl::StatusOr<LRScheduler> MakeScheduler(torch::optim::Optimizer* optimizer, const TrainConfig& config) {
  checkpoint::Schedule schedule = checkpoint::StepLR{/*step_size=*/30};
  if (config.schedule == Schedule::kCosine) {
    schedule = checkpoint::CosineAnnealingLR{config.epochs - config.warmup_epochs};
  }
  if (config.warmup_epochs == 0) return LRScheduler::Create(optimizer, schedule);
  const checkpoint::LinearLR warmup = {0.01, 1, config.warmup_epochs};
  return LRScheduler::Create(optimizer, checkpoint::SequentialLR{{warmup, schedule}, {config.warmup_epochs}});
}

// Freezes all parameters except the last layer's.
void Freeze(torch::nn::Module& net) {
  const std::string last_layer = LastLayer(net) + ".";
  for (const auto& parameter : net.named_parameters()) {
    parameter.value().set_requires_grad(absl::StartsWith(parameter.key(), last_layer));
  }
}

absl::StatusOr<models::ImageClassifier> MakeNet(const TrainConfig& config, int64_t num_classes, c10::Device device) {
  LOCKSTEP_ASSIGN_OR_RETURN(models::ImageClassifier net,
                            models::Make(config.arch, num_classes, models::BatchNorm, config.dropout));
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus(config.arch, [&] {
    net->to(device);
    if (config.channels_last) models::ToChannelsLast(*net);
    if (config.freeze_backbone) Freeze(*net);
  }));
  return net;
}

// Makes BatchNorm normalise with its averages, and not update them.
void KeepAverages(torch::nn::Module& net) {
  for (const std::shared_ptr<torch::nn::Module>& module : net.modules()) {
    if (auto* const norm = module->as<torch::nn::BatchNorm2dImpl>()) norm->eval();
  }
}

at::Tensor Loss(const at::Tensor& logits, const at::Tensor& target, double label_smoothing) {
  return torch::nn::functional::cross_entropy(
      logits, target, torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(label_smoothing));
}

BatchResult ResultOf(const at::Tensor& loss, const at::Tensor& logits, const at::Tensor& target) {
  BatchResult result;
  result.loss = loss.item<double>();
  result.images = target.size(0);
  result.in_top1 = CountInTopK(logits, target, 1);
  result.in_top5 = CountInTopK(logits, target, 5);
  return result;
}

// Without a group (nullptr) this rank is the only one.
absl::Status TakeFromRankZero(const std::vector<at::Tensor>& tensors, comm::ProcessGroup* group) {
  for (const at::Tensor& tensor : tensors) {
    if (group) LOCKSTEP_RETURN_IF_ERROR(group->Broadcast(tensor.detach(), /*root=*/0));
  }
  return absl::OkStatus();
}

void Update(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& now, double decay) {
  for (size_t i = 0; i < averages.size(); ++i) {
    if (averages[i].is_floating_point()) {
      averages[i].lerp_(now[i], 1 - decay);
    } else {
      averages[i].copy_(now[i]);
    }
  }
}

int64_t Bytes(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

void UpdateAverage(torch::nn::Module& average, const torch::nn::Module& now, double decay) {
  const at::NoGradGuard no_grad;
  Update(average.parameters(), now.parameters(), decay);
  Update(average.buffers(), now.buffers(), decay);
}

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(const TrainConfig& config, int64_t num_classes,
                                                         c10::Device device) {
  if (config.mkldnn && !device.is_cpu()) return absl::InvalidArgumentError("--mkldnn is for the CPU");
  if (config.amp == Amp::kHalf && device.is_cpu()) {
    return absl::InvalidArgumentError("--amp=fp16 needs a GPU; on the CPU there is --amp=bf16");
  }
  std::optional<ddp::GradScaler> scaler;
  if (config.amp == Amp::kHalf) {
    LOCKSTEP_ASSIGN_OR_RETURN(scaler, ddp::GradScaler::Create());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(models::ImageClassifier net, MakeNet(config, num_classes, device));
  auto optimizer = std::make_unique<torch::optim::SGD>(
      net->parameters(),
      torch::optim::SGDOptions(config.lr).momentum(config.momentum).weight_decay(config.weight_decay));
  LOCKSTEP_ASSIGN_OR_RETURN(LRScheduler scheduler, MakeScheduler(optimizer.get(), config));
  std::unique_ptr<Learner> learner(
      new Learner(config, device, std::move(net), std::move(optimizer), std::move(scheduler), std::move(scaler)));
  if (config.ema_decay == 0) return learner;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("--ema-decay", [&] {
    learner->average_ =
        models::ImageClassifier(std::dynamic_pointer_cast<models::ImageClassifierImpl>(learner->net_->clone()));
  }));
  return learner;
}

Learner::Learner(const TrainConfig& config, c10::Device device, models::ImageClassifier net,
                 std::unique_ptr<torch::optim::SGD> optimizer, LRScheduler scheduler,
                 std::optional<ddp::GradScaler> scaler)
    : config_(config),
      device_(device),
      net_(std::move(net)),
      optimizer_(std::move(optimizer)),
      scheduler_(std::move(scheduler)),
      scaler_(std::move(scaler)) {}

absl::Status Learner::KeepIn(elastic::World& world) {
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("net", *net_));
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("optimizer", *optimizer_));
  LOCKSTEP_RETURN_IF_ERROR(world.Keep("scheduler", scheduler_));
  if (scaler_) LOCKSTEP_RETURN_IF_ERROR(world.Keep("scaler", *scaler_));
  if (!average_) return absl::OkStatus();
  // The average is not kept as a module, whose buffers the ranks exchange in each step: its buffers are equal.
  const auto save = [this]() -> absl::StatusOr<Value> { return checkpoint::StateDict(*average_); };
  return world.Keep("model_ema", save,
                    [this](const Value& value) { return checkpoint::LoadStateDict(*average_, value); });
}

absl::Status Learner::Distribute(comm::ProcessGroup* group) {
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

void Learner::Leave() {
  ddp_.reset();
  group_ = nullptr;
  buckets_.reset();  // a rank that comes does not have them
}

absl::Status Learner::Begin() {
  LOCKSTEP_RETURN_IF_ERROR(TakeFromRankZero(net_->parameters(), group_));
  LOCKSTEP_RETURN_IF_ERROR(TakeFromRankZero(net_->buffers(), group_));
  if (!average_ || average_is_restored_) return absl::OkStatus();
  return checkpoint::LoadStateDict(*average_, checkpoint::StateDict(*net_));
}

data::Example Learner::OnDevice(const data::Example& batch) const {
  const auto format = config_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  const at::Tensor images = batch.data.to(device_, /*non_blocking=*/true).contiguous(format);
  return {config_.mkldnn ? images.to_mkldnn() : images, batch.target.to(device_, /*non_blocking=*/true)};
}

ddp::Autocast Learner::MakeAutocast() const {
  return ddp::Autocast(device_.type(), config_.amp == Amp::kHalf ? at::kHalf : at::kBFloat16,
                       config_.amp != Amp::kNone);
}

absl::Status Learner::ForEachVirtualRank(int64_t step, const std::function<absl::Status(int virtual_rank)>& train) {
  if (!ddp_) return train(0);
  return TorchStatus("", [&] {
    for (const int virtual_rank : ddp_->VirtualRanks(step)) ThrowIfError(train(virtual_rank));
  });
}

absl::StatusOr<BatchResult> Learner::Train(const data::Example& batch, int64_t parts, bool last) {
  return TorchStatusOr("", [&] {
    net_->train();
    if (config_.freeze_backbone) KeepAverages(*net_);
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

absl::Status Learner::StepOptimizer() {
  if (scaler_) {
    LOCKSTEP_RETURN_IF_ERROR(scaler_->Step(*optimizer_).status());
    LOCKSTEP_RETURN_IF_ERROR(scaler_->Update());
  }
  return TorchStatus("", [&] {
    if (!scaler_) optimizer_->step();
    optimizer_->zero_grad();
    if (average_) UpdateAverage(*average_, *net_, config_.ema_decay);
  });
}

absl::Status Learner::BeginEvaluation() { return TakeFromRankZero((average_ ? average_ : net_)->buffers(), group_); }

absl::StatusOr<BatchResult> Learner::Evaluate(const data::Example& batch) {
  return TorchStatusOr("", [&] {
    const at::NoGradGuard no_grad;
    models::ImageClassifier& net = average_ ? average_ : net_;
    net->eval();
    const data::Example example = OnDevice(batch);
    const ddp::Autocast autocast = MakeAutocast();
    const at::Tensor logits = net(example.data);
    return ResultOf(Loss(logits, example.target, /*label_smoothing=*/0), logits, example.target);
  });
}

int64_t Learner::StateBytes() const {
  const int64_t parameters = Bytes(net_->parameters()), net = parameters + Bytes(net_->buffers());
  return net + (config_.momentum == 0 ? 0 : parameters) + (config_.ema_decay == 0 ? 0 : net);
}

absl::StatusOr<std::vector<Value::Entry>> Learner::State() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, checkpoint::OptimizerStateDict(*optimizer_));
  std::vector<Value::Entry> entries = {
      {"state_dict", checkpoint::StateDict(*net_)}, {"optimizer", optimizer}, {"scheduler", scheduler_.StateDict()}};
  if (scaler_) entries.push_back({"scaler", ToValue(scaler_->State())});
  if (average_) entries.push_back({"model_ema", checkpoint::StateDict(*average_)});
  const bool buckets_matter = ddp_ && config_.virtual_ranks == 0;
  if (buckets_matter) entries.push_back({"bucket_layout", ddp::ToValue(ddp_->bucket_layout(), group_->size())});
  return entries;
}

absl::Status Learner::Restore(const Value& file) {
  LOCKSTEP_RETURN_IF_ERROR(RestoreWeights(file));
  if (const Value* const buckets = file.Find("bucket_layout"); buckets) buckets_ = *buckets;
  LOCKSTEP_ASSIGN_OR_RETURN(const Value optimizer, checkpoint::GetDict(file, "optimizer"));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::LoadOptimizerStateDict(*optimizer_, optimizer));
  LOCKSTEP_ASSIGN_OR_RETURN(const Value scheduler, checkpoint::GetDict(file, "scheduler"));
  LOCKSTEP_RETURN_IF_ERROR(scheduler_.LoadStateDict(scheduler));
  const Value* const scaler = file.Find("scaler");
  if (!scaler || !scaler_) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const ddp::GradScalerState state, ddp::ToGradScalerState(*scaler));
  return scaler_->LoadState(state);
}

absl::Status Learner::RestoreWeights(const Value& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state_dict, checkpoint::GetDict(file, "state_dict"));
  LOCKSTEP_RETURN_IF_ERROR(LoadPossiblyWrapped(*net_, state_dict));
  const Value* const average = file.Find("model_ema");
  if (!average || !average_) return absl::OkStatus();
  average_is_restored_ = true;
  return checkpoint::LoadStateDict(*average_, *average);
}

}  // namespace lockstep::examples::imagenet
