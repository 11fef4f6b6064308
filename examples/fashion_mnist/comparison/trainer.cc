#include "lockstep/examples/fashion_mnist/comparison/trainer.h"

#include <torch/cuda.h>
#include <torch/data/dataloader.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/data/example.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/data/torch_dataset.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/dp/data_parallel.h"
#include "lockstep/examples/fashion_mnist/comparison/reporter.h"
#include "lockstep/examples/fashion_mnist/net.h"
#include "lockstep/examples/program/finite_loss.h"
#include "lockstep/examples/program/pretrained.h"
#include "lockstep/sampler/distributed_sampler.h"
#include "lockstep/sampler/evaluation_sampler.h"
#include "lockstep/sampler/torch_sampler.h"

namespace lockstep::examples {
namespace {

using data::FashionMnist;

// What one rank trains with. Alone, it is rank 0 of 1.
class Trainer {
 public:
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainConfig& config, comm::ProcessGroup* group);

  absl::Status Run();

 private:
  Trainer(const TrainConfig& config, comm::ProcessGroup* group, FashionMnist train, FashionMnist test,
          sampler::DistributedSampler sampler);

  int rank() const { return group_ ? group_->rank() : 0; }
  int ranks() const { return group_ ? group_->size() : 1; }
  int64_t rank_batch() const { return config_.batch_size / ranks(); }
  int64_t steps_per_epoch() const { return (sampler_.num_samples() + rank_batch() - 1) / rank_batch(); }

  absl::Status Prepare();
  absl::Status CheckLoss(double loss);
  absl::Status Replicate();
  torch::Tensor Logits(const torch::Tensor& images);
  torch::Tensor Inputs(const torch::Tensor& images) const;
  absl::Status DryRun();
  absl::StatusOr<EpochReport> TrainEpoch();
  torch::Tensor Backward(const data::Example& batch);
  absl::StatusOr<double> Step(const data::Example& batch);
  void SetLearningRate();
  absl::StatusOr<double> TestAccuracy();
  absl::StatusOr<double> OverRanks(double value, comm::ReduceOp op);

  const TrainConfig config_;
  const Recipe recipe_ = RecipeOf(config_);
  comm::ProcessGroup* const group_;
  const FashionMnist train_;
  const FashionMnist test_;
  sampler::DistributedSampler sampler_;
  Net net_;
  torch::optim::SGD optimizer_;
  std::optional<ddp::DistributedDataParallel<Net>> ddp_;
  std::optional<dp::DataParallel<Net>> dp_;
  std::optional<Reporter> reporter_;  // on rank 0
  FiniteLoss finite_loss_;
  int64_t epoch_ = 0, step_ = 0;  // whole epochs so far, and steps of the next one
};

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainConfig& config, comm::ProcessGroup* group) {
  sampler::DistributedSamplerOptions options;
  options.num_replicas = group ? group->size() : 1;
  options.rank = group ? group->rank() : 0;
  options.seed = config.seed;
  options.shuffle = RecipeOf(config).shuffle;
  if (config.batch_size % options.num_replicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--batch_size=", config.batch_size, " cannot be shared evenly by ",
                                                   options.num_replicas, " ranks"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(FashionMnist train, FashionMnist::Load(config.data_dir, FashionMnist::Split::kTrain));
  LOCKSTEP_ASSIGN_OR_RETURN(FashionMnist test, FashionMnist::Load(config.data_dir, FashionMnist::Split::kTest));
  LOCKSTEP_ASSIGN_OR_RETURN(sampler::DistributedSampler sampler,
                            sampler::DistributedSampler::Create(train.labels().size(0), options));
  torch::manual_seed(static_cast<uint64_t>(config.seed));
  return std::unique_ptr<Trainer>(new Trainer(config, group, std::move(train), std::move(test), std::move(sampler)));
}

Trainer::Trainer(const TrainConfig& config, comm::ProcessGroup* group, FashionMnist train, FashionMnist test,
                 sampler::DistributedSampler sampler)
    : config_(config),
      group_(group),
      train_(std::move(train)),
      test_(std::move(test)),
      sampler_(std::move(sampler)),
      optimizer_(net_->parameters(), torch::optim::SGDOptions(recipe_.lr).momentum(recipe_.momentum)),
      finite_loss_(group, config.terminate_on_nan) {}

absl::Status Trainer::Prepare() {
  if (rank() == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(reporter_, Reporter::Create(config_.dry_run ? "" : config_.metrics_file));
  }
  if (config_.parallel == Parallel::kDp) LOCKSTEP_RETURN_IF_ERROR(Replicate());
  if (!config_.pretrained.empty()) LOCKSTEP_RETURN_IF_ERROR(LoadPretrained(config_.pretrained, *net_));
  if (group_) {
    LOCKSTEP_ASSIGN_OR_RETURN(ddp_, ddp::Wrap(net_, group_));
  }
  return absl::OkStatus();
}

// The CUDA runtime itself heeds CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
absl::Status Trainer::Replicate() {
  dp::Options options;
  if (torch::cuda::device_count() == 0) options.device_ids.assign(config_.cpu_slots, dp::DeviceId(torch::kCPU));
  LOCKSTEP_ASSIGN_OR_RETURN(dp_, dp::Wrap(net_, options));
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { net_->to(dp_->device_ids()[0]); }));
  reporter_->Say(
      absl::StrCat("batches are shared by ", absl::StrJoin(dp_->device_ids(), ", ", absl::StreamFormatter())));
  return absl::OkStatus();
}

absl::Status Trainer::Run() {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  if (config_.dry_run) return DryRun();
  EpochReport last;
  for (; epoch_ < config_.epochs; ++epoch_) {
    LOCKSTEP_ASSIGN_OR_RETURN(last, TrainEpoch());
    if (reporter_) LOCKSTEP_RETURN_IF_ERROR(reporter_->Epoch(last));
  }
  return reporter_ ? reporter_->Done(last) : absl::OkStatus();
}

absl::StatusOr<EpochReport> Trainer::TrainEpoch() {
  net_->train();
  sampler_.set_epoch(epoch_);
  auto loader = torch::data::make_data_loader(data::TorchBatchDataset(train_), sampler::TorchSampler(sampler_),
                                              torch::data::DataLoaderOptions(rank_batch()));
  double loss_sum = 0;
  int64_t images = 0;
  absl::Duration training_time;
  absl::Time start = absl::Now();
  step_ = 0;
  for (const data::Example& batch : *loader) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double loss, Step(batch));
    ++step_;
    loss_sum += loss;
    images += batch.target.size(0) * ranks();
    training_time += absl::Now() - start;
    const double images_per_second = images / absl::ToDoubleSeconds(training_time);
    if (reporter_) {
      LOCKSTEP_RETURN_IF_ERROR(reporter_->Step({epoch_ + 1, step_, steps_per_epoch(), loss, images_per_second}));
    }
    start = absl::Now();
  }
  EpochReport report;
  report.epoch = epoch_ + 1;
  report.step = step_;
  report.loss = loss_sum / step_;
  report.examples_per_second = images / absl::ToDoubleSeconds(training_time);
  report.training_time = training_time;
  LOCKSTEP_ASSIGN_OR_RETURN(report.accuracy, TestAccuracy());
  return report;
}

void Trainer::SetLearningRate() {
  if (!recipe_.schedule) return;
  const int64_t done = epoch_ * steps_per_epoch() + step_, all = config_.epochs * steps_per_epoch();
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(recipe_.lr * ScheduledShare(done, all));
}

torch::Tensor Trainer::Inputs(const torch::Tensor& images) const {
  return recipe_.normalize ? Normalized(images) : images;
}

torch::Tensor Trainer::Logits(const torch::Tensor& images) {
  if (ddp_) return (*ddp_)(Inputs(images));
  if (dp_) return (*dp_)(Inputs(images));
  return net_(Inputs(images));
}

// The loss over this rank's batch, and its gradients.
torch::Tensor Trainer::Backward(const data::Example& batch) {
  const torch::Tensor logits = Logits(batch.data);
  const torch::Tensor loss = torch::nn::functional::cross_entropy(logits, batch.target.to(logits.device()));
  loss.backward();  // under DDP the gradients are averaged over the ranks in here
  return loss;
}

// One step of training; the loss over the batches of all ranks.
absl::StatusOr<double> Trainer::Step(const data::Example& batch) {
  torch::Tensor loss;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
    SetLearningRate();
    optimizer_.zero_grad();
    loss = Backward(batch);
    optimizer_.step();
  }));
  LOCKSTEP_RETURN_IF_ERROR(CheckLoss(loss.item<float>()));
  return OverRanks(loss.item<float>(), comm::ReduceOp::kAvg);
}

absl::Status Trainer::CheckLoss(double loss) {
  const std::string where = absl::StrCat("epoch ", epoch_ + 1, ", step ", step_ + 1);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string warning, finite_loss_.Check(loss, where));
  if (warning.empty()) return absl::OkStatus();
  if (reporter_) {
    reporter_->Warn(warning);
  } else {
    std::cerr << absl::StrCat(warning, "\n");
  }
  return absl::OkStatus();
}

// The share of all test images that are classified right; each counts exactly once.
absl::StatusOr<double> Trainer::TestAccuracy() {
  const torch::NoGradGuard no_grad;
  net_->eval();
  const int64_t size = test_.labels().size(0);
  sampler::EvaluationSamplerOptions options;
  options.num_replicas = ranks();
  options.rank = rank();
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::EvaluationSampler::Create(size, options));
  int64_t correct = 0, seen = 0;
  while (const auto indices = sampler.next(1000)) {
    const data::Example batch = test_.Batch(std::vector<int64_t>(indices->begin(), indices->end()));
    // The module itself: under DDP each forward is collective, and ranks may have different numbers of batches here.
    const torch::Tensor logits = dp_ ? (*dp_)(Inputs(batch.data)) : net_(Inputs(batch.data));
    correct += logits.argmax(1).cpu().eq(batch.target).sum().item<int64_t>();
    seen += static_cast<int64_t>(indices->size());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const double all_correct, OverRanks(correct, comm::ReduceOp::kSum));
  LOCKSTEP_ASSIGN_OR_RETURN(const double all_seen, OverRanks(seen, comm::ReduceOp::kSum));
  if (all_seen != size) return absl::InternalError(absl::StrCat("tested ", all_seen, " images, there are ", size));
  return all_correct / all_seen;
}

absl::StatusOr<double> Trainer::OverRanks(double value, comm::ReduceOp op) {
  if (!group_) return value;
  const torch::Tensor tensor = torch::tensor(value, torch::kDouble);
  LOCKSTEP_RETURN_IF_ERROR(group_->AllReduce(tensor, op));
  return tensor.item<double>();
}

absl::Status Trainer::DryRun() {
  std::vector<int64_t> indices = sampler_.Indices();
  indices.resize(std::min<int64_t>(rank_batch(), indices.size()));
  const data::Example batch = train_.Batch(indices);
  torch::Tensor loss;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { loss = Backward(batch); }));
  LOCKSTEP_ASSIGN_OR_RETURN(const double mean, OverRanks(loss.item<float>(), comm::ReduceOp::kAvg));
  if (reporter_) {
    reporter_->Say(absl::StrCat("dry run: ", ranks(), " ranks, ", steps_per_epoch(), " steps of ", config_.batch_size,
                                " images an epoch, ", config_.epochs, " epochs; loss of the first batch ", mean));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Train(const TrainConfig& config, comm::ProcessGroup* group) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, Trainer::Create(config, group));
  return trainer->Run();
}

}  // namespace lockstep::examples
