// The training that chaos hurts: a small network with dropout, on the test images of Fashion-MNIST, because
// reading all of them would take most of a restart. It ends after the step that its board says, and rank 0 of the last
// generation writes $D/net.pt.

#include <stdlib.h>
#include <sys/resource.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/data/fashion_mnist.h"
#include "lockstep/ddp/distributed_data_parallel.h"
#include "lockstep/elastic/chaos/internal/board.h"
#include "lockstep/elastic/sharded_model.h"
#include "lockstep/elastic/sharded_optimizer.h"
#include "lockstep/elastic/world.h"
#include "lockstep/elastic/wrap.h"
#include "lockstep/launch/report/report.h"
#include "lockstep/models/transformer/causal_lm.h"
#include "lockstep/sampler/virtual_rank_sampler.h"

namespace lockstep::elastic::chaos::testing {
namespace {

using internal::Board;
using internal::Order;
using internal::Stage;

constexpr int kVirtualRanks = 8, kSeed = 7;
constexpr int64_t kBatch = 8;  // of a virtual rank

int64_t Number(const char* name, int64_t otherwise) {
  int64_t value = otherwise;
  const char* const text = getenv(name);
  return text && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// Three layers; or with $GPT a GPT-2 of two, which reads an image of 7 x 7 pixels as tokens and says its class next.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t hidden) {
    if (Number("GPT", 0) != 0) {
      models::CausalLMConfig config = {"gpt2", /*vocab_size=*/16, hidden, /*num_hidden_layers=*/2,
                                       /*num_attention_heads=*/4};
      config.max_position_embeddings = 49;
      config.embd_pdrop = config.resid_pdrop = 0.1;
      gpt = register_module("gpt", models::CausalLM(config));
      return;
    }
    first = register_module("first", torch::nn::Linear(784, hidden));
    second = register_module("second", torch::nn::Linear(hidden, hidden));
    third = register_module("third", torch::nn::Linear(hidden, 10));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (gpt) {
      const at::Tensor tokens = at::avg_pool2d(x, 4).flatten(1).sigmoid().mul(15).to(at::kLong);
      return gpt->forward(tokens).select(1, -1).narrow(1, 0, 10);
    }
    const auto half = torch::nn::functional::DropoutFuncOptions().p(0.1);
    return third(torch::nn::functional::dropout(second(first(x.flatten(1)).relu()).relu(), half));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  models::CausalLM gpt{nullptr};
};
TORCH_MODULE(Net);

// Fails as a training does without memory: an allocation fails, which is an exception.
void Allocate() {
  rlimit limit = {};
  limit.rlim_cur = limit.rlim_max = rlim_t{1} << 20;  // less than the process has already
  setrlimit(RLIMIT_AS, &limit);
  for (;;) at::ones({int64_t{1} << 24}).add_(1);
}

void Apply(Board* board, int slot) {
  switch (board->TakeOrder(slot, getpid())) {
    case Order::kNone:
      return;
    case Order::kExit0:
      exit(0);
    case Order::kExit1:
      exit(1);
    case Order::kThrow:
      throw std::runtime_error("chaos: an exception in the step");
    case Order::kAllocate:
      return Allocate();
    case Order::kSleep:
      sleep(internal::kSleepSeconds);
  }
}

class Training {
 public:
  static absl::StatusOr<std::unique_ptr<Training>> Create(Board* board, int slot) {
    Options options;
    options.timeout = absl::Minutes(2);
    options.leave_timeout = absl::Milliseconds(Number("LEAVE_TIMEOUT_MS", 1000));
    options.failures_per_cause = 0;  // they come again by intention
    LOCKSTEP_ASSIGN_OR_RETURN(auto world, World::Join(options));
    LOCKSTEP_ASSIGN_OR_RETURN(auto images, data::FashionMnist::Load(getenv("DATA"), data::FashionMnist::Split::kTest));
    std::unique_ptr<Training> training(new Training(board, slot, std::move(world), std::move(images)));
    LOCKSTEP_RETURN_IF_ERROR(training->Keep());
    return training;
  }

  absl::Status Run() {
    board_.place(slot_).stage = static_cast<int>(Stage::kJoins);
    LOCKSTEP_RETURN_IF_ERROR(world_->Run([this](comm::ProcessGroup* group) {
      const absl::Status status = Train(group);
      board_.place(slot_).stage = static_cast<int>(Stage::kJoins);  // until the next generation trains
      return status;
    }));
    board_.place(slot_).stage = static_cast<int>(Stage::kEnds);
    return absl::OkStatus();
  }

 private:
  Training(Board* board, int slot, std::unique_ptr<World> world, data::FashionMnist images)
      : board_(*board), slot_(slot), images_(std::move(images)), world_(std::move(world)) {}

  absl::Status Keep() {
    const bool shards_model = Number("SHARDED_MODEL", 0) != 0, shards = shards_model || Number("SHARDED", 0) != 0;
    if (shards_model) {
      fsdp::Options options;
      options.unit_bytes = 1 << 18;
      options.virtual_ranks = kVirtualRanks;
      options.virtual_seed = kSeed;
      LOCKSTEP_ASSIGN_OR_RETURN(ShardedModel<Net> model, ShardModel(net_, options, /*piece_elements=*/1 << 14));
      model_.emplace(std::move(model));
    }
    LOCKSTEP_RETURN_IF_ERROR(shards_model ? world_->Keep("net", *model_) : world_->Keep("net", *net_));
    optimizer_.emplace(shards_model ? model_->pieces() : net_->parameters(),
                       torch::optim::SGDOptions(0.01).momentum(0.9));
    torch::optim::Optimizer& plain = *optimizer_;
    LOCKSTEP_RETURN_IF_ERROR(shards ? world_->Keep("optimizer", *optimizer_) : world_->Keep("optimizer", plain));
    return world_->Keep("step", &step_);
  }

  absl::Status Train(comm::ProcessGroup* group) {
    const int rank = group->rank();
    board_.Enter(slot_, world_->generation().number, rank, group->size());
    if (model_) {
      LOCKSTEP_ASSIGN_OR_RETURN(auto net, model_->Wrap(group));
      return TrainWith(&net, group);
    }
    ddp::Options options;
    options.virtual_ranks = kVirtualRanks;
    options.virtual_seed = kSeed;
    LOCKSTEP_ASSIGN_OR_RETURN(auto ddp, elastic::Wrap(net_, group, options));
    return TrainWith(&ddp, group);
  }

  template <typename Handle>
  absl::Status TrainWith(Handle* net, comm::ProcessGroup* group) {
    // One for each virtual rank, since wrappers differ in the virtual ranks of a rank.
    std::vector<sampler::VirtualRankSampler> samplers;
    for (int v = 0; v < kVirtualRanks; ++v) {
      LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, sampler::VirtualRankSampler::Create(images_.size(), v, kVirtualRanks,
                                                                                  {.num_replicas = kVirtualRanks}));
      samplers.push_back(std::move(sampler));
    }
    const int64_t first = step_;
    while (step_ < board_.last_step()) {
      // Not at first, so that it is no part of the time from a death to the next step.
      if (step_ > first) Pause(group);
      LOCKSTEP_RETURN_IF_ERROR(Step(net, &samplers, step_ == first));
    }
    if (model_) LOCKSTEP_RETURN_IF_ERROR(world_->GatherShards());
    if (group->rank() != 0) return absl::OkStatus();
    Net copy(Number("HIDDEN", 512));  // parameters that are views of shared pages would be written with all of these
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < copy->parameters().size(); ++i) copy->parameters()[i].copy_(net_->parameters()[i]);
    return checkpoint::Save(absl::StrCat(getenv("D"), "/net.pt"), checkpoint::StateDict(*copy));
  }

  template <typename Handle>
  absl::Status Step(Handle* net, std::vector<sampler::VirtualRankSampler>* samplers, bool is_first) {
    if (world_->generation().rank == 0) board_.RecordBegin(step_ + 1);
    for (sampler::VirtualRankSampler& sampler : *samplers) LOCKSTEP_RETURN_IF_ERROR(Place(&sampler, is_first));
    LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
      Apply(&board_, slot_);
      net_->zero_grad();
      for (const int virtual_rank : net->VirtualRanks(step_)) {
        const std::vector<size_t> places = *(*samplers)[virtual_rank].next(kBatch);
        const auto batch = images_.Batch(std::vector<int64_t>(places.begin(), places.end()));
        torch::nn::functional::cross_entropy((*net)(batch.data), batch.target).backward();
      }
    }));
    return world_->Commit([&] {
      optimizer_->step();
      ++step_;
      board_.RecordCommit(step_, world_->generation().number);
    });
  }

  // Before the first step of a generation and of an epoch, in which no batch is shorter than the others.
  absl::Status Place(sampler::VirtualRankSampler* sampler, bool is_first) {
    const int64_t epoch_steps = images_.size() / (kBatch * kVirtualRanks);
    if (!is_first && step_ % epoch_steps != 0) return absl::OkStatus();
    sampler->set_epoch(step_ / epoch_steps);
    sampler::SamplerState place = sampler->State(0);
    place.consumed = step_ % epoch_steps * kBatch * kVirtualRanks;
    LOCKSTEP_RETURN_IF_ERROR(sampler->Restore(place));
    sampler->reset();
    return absl::OkStatus();
  }

  // So that a long run has few steps. A training that waits for data would notice a death as this one does: not.
  void Pause(comm::ProcessGroup* group) const {
    const int64_t end_ns = MonotonicNanos() + Number("PAUSE_US", 0) * 1000;
    while (MonotonicNanos() < end_ns && group->failure().ok()) usleep(500);
  }

  Board& board_;
  const int slot_;
  const data::FashionMnist images_;
  Net net_{Number("HIDDEN", 512)};
  std::optional<ShardedModel<Net>> model_;
  std::optional<ShardedOptimizer<torch::optim::SGD>> optimizer_;
  int64_t step_ = 0;
  const std::unique_ptr<World> world_;  // ends before the things that it keeps
};

absl::Status Run() {
  const char* const path = getenv(internal::kBoardVariable);
  if (!path) return absl::FailedPreconditionError(absl::StrCat(internal::kBoardVariable, " is not set"));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto board, Board::Open(path));
  const int slot = static_cast<int>(Number("SLOT_BASE", 0) + Number("LOCAL_RANK", 0));
  board->Start(slot, getpid());
  at::set_num_threads(1);
  at::manual_seed(3);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto training, Training::Create(board.get(), slot));
  return training->Run();
}

}  // namespace
}  // namespace lockstep::elastic::chaos::testing

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  absl::Status status;
  const absl::Status thrown = lockstep::TorchStatus("", [&] { status = lockstep::elastic::chaos::testing::Run(); });
  status.Update(thrown);
  if (status.ok()) return 0;
  lockstep::launch::ReportError(status);
  std::cerr << status.message() << "\n";
  return 1;
}
