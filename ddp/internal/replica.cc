#include "lockstep/ddp/internal/replica.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/ddp/internal/autograd_hooks.h"
#include "lockstep/ddp/internal/check_options.h"
#include "lockstep/ddp/internal/flat.h"
#include "lockstep/ddp/internal/layout_agreement.h"

namespace lockstep::ddp::internal {
namespace {

// The parameters whose module asks for sparse gradients.
std::set<const at::TensorImpl*> SparseParameters(const torch::nn::Module& module) {
  std::set<const at::TensorImpl*> sparse;
  const auto look_at = [&sparse](const torch::nn::Module& one) {
    if (const auto* embedding = one.as<torch::nn::EmbeddingImpl>(); embedding && embedding->options.sparse())
      sparse.insert(embedding->weight.unsafeGetTensorImpl());
    if (const auto* bag = one.as<torch::nn::EmbeddingBagImpl>(); bag && bag->options.sparse())
      sparse.insert(bag->weight.unsafeGetTensorImpl());
  };
  look_at(module);
  for (const auto& child : module.modules(/*include_self=*/false)) look_at(*child);
  return sparse;
}

// Well mixed, as neighbouring seeds give generators that are alike at first (splitmix64, by S. Vigna).
uint64_t SeedOf(int64_t seed, int64_t step, int virtual_rank) {
  uint64_t mixed = static_cast<uint64_t>(seed);
  for (const uint64_t next : {static_cast<uint64_t>(step), static_cast<uint64_t>(virtual_rank)}) {
    mixed += next + 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

}  // namespace

Replica::Replica(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options)
    : group_(group), options_(options) {
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    parameters_.push_back(item.value());
    if (options.parameters_to_ignore.count(item.key())) continue;
    named_parameters_.push_back({item.key(), item.value()});
    if (item.value().requires_grad()) trained_.push_back(named_parameters_.back());
  }
  for (const auto& item : module.named_buffers()) {
    if (options.parameters_to_ignore.count(item.key()) || !item.value().defined()) continue;
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) buffers_.push_back(item.value());
  }
}

// A module that is released between forward and backward gets its parameters back.
Replica::~Replica() {
  if (casts_) casts_->Restore();
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(const torch::nn::Module& module, comm::ProcessGroup* group,
                                                         const Options& options) {
  const std::string who = absl::StrCat("rank ", group->rank(), ": ddp::Wrap");
  std::unique_ptr<Replica> replica(new Replica(module, group, options));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(replica->Build(module), who));
  return replica;
}

absl::Status Replica::Build(const torch::nn::Module& module) {
  // The ranks compare first, so that a rank whose own check fails does not leave the others waiting.
  if (comm::internal::GroupAccess::OnlyLockstepRanks(*group_))
    LOCKSTEP_RETURN_IF_ERROR(CheckSameParameters(*group_, named_parameters_));
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options_, module, trained_, group_->size()));
  if (options_.init_sync) {
    if (!comm::internal::GroupAccess::OnlyLockstepRanks(*group_))
      LOCKSTEP_RETURN_IF_ERROR(CheckSameParametersAsPython(*group_, trained_));
    LOCKSTEP_RETURN_IF_ERROR(SynchronizeFrom(0));
  }
  return TorchStatus("", [&] {
    const std::set<const at::TensorImpl*> sparse = SparseParameters(module);
    const std::set<std::string> delayed(options_.delay_all_reduce_named_params.begin(),
                                        options_.delay_all_reduce_named_params.end());
    if (options_.virtual_ranks > 0 && !sparse.empty()) {
      ThrowIfError(absl::InvalidArgumentError("virtual_ranks does not support embeddings with sparse gradients"));
    }
    std::vector<ReducedParameter> reduced;
    ReducerOptions reducer_options = ToReducerOptions(options_);
    for (const NamedTensor& parameter : trained_) {
      if (parameter.name == options_.param_to_hook_all_reduce)
        reducer_options.delay_until = static_cast<int>(reduced.size());
      reduced.push_back({parameter.name, parameter.tensor, sparse.count(parameter.tensor.unsafeGetTensorImpl()) > 0,
                         delayed.count(parameter.name) > 0});
    }
    reducer_ = std::make_shared<Reducer>(std::move(reduced), group_, std::move(reducer_options));
    if (!options_.mixed_precision) return;
    if (options_.mixed_precision->buffer_dtype) CastBuffers(*options_.mixed_precision->buffer_dtype);
    if (!options_.mixed_precision->param_dtype) return;
    std::vector<at::Tensor> floating;
    for (const NamedTensor& parameter : named_parameters_) {
      if (parameter.tensor.is_floating_point()) floating.push_back(parameter.tensor);
    }
    casts_.emplace(std::move(floating), *options_.mixed_precision->param_dtype);
    reducer_->SetEndCallback([this] { casts_->Restore(); });
    reducer_->ReinstallHooks();  // each later forward that computes gradients does this too
  });
}

void Replica::CastBuffers(c10::ScalarType dtype) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& buffer : buffers_) {
    if (buffer.is_floating_point()) buffer.set_data(buffer.to(dtype));
  }
}

absl::Status Replica::SynchronizeFrom(int rank) {
  std::vector<at::Tensor> state;
  for (const NamedTensor& parameter : named_parameters_) state.push_back(parameter.tensor);
  if (options_.broadcast_buffers) state.insert(state.end(), buffers_.begin(), buffers_.end());
  return BroadcastCoalesced(*group_, state, rank);
}

absl::Status Replica::RegisterHook(CommunicationHook hook) {
  const std::string who = absl::StrCat("rank ", group_->rank(), ": RegisterHook");
  if (!hook) return absl::InvalidArgumentError(absl::StrCat(who, ": the hook is empty"));
  if (options_.virtual_ranks > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, ": with virtual_ranks the sum is over a tree, so no hook can take its place"));
  }
  if (reducer_->has_hook()) return absl::FailedPreconditionError(absl::StrCat(who, ": there is a hook already"));
  if (reducer_->in_backward()) return absl::FailedPreconditionError(absl::StrCat(who, ": backward is running"));
  reducer_->SetHook(std::move(hook));
  return absl::OkStatus();
}

BucketLayout Replica::NextBucketLayout() const {
  BucketLayout layout;
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(*group_)) return layout;  // it could not be restored
  for (const std::vector<int>& bucket : reducer_->plan().Next()) {
    layout.emplace_back();
    for (const int i : bucket) layout.back().push_back(trained_[i].name);
  }
  return layout;
}

absl::Status Replica::RestoreBucketLayout(const BucketLayout& layout) {
  const std::string who = absl::StrCat("rank ", group_->rank(), ": RestoreBucketLayout");
  if (!comm::internal::GroupAccess::OnlyLockstepRanks(*group_)) {
    if (layout.empty()) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(who, ": Python ranks begin with one bucket, so all ranks must"));
  }
  if (reducer_->in_backward()) return absl::FailedPreconditionError(absl::StrCat(who, ": backward is running"));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckSameLayout(*group_, layout), who));
  if (layout.empty()) return absl::OkStatus();
  const auto numbers = reducer_->plan().Numbers(layout);
  if (!numbers.ok()) return Annotate(numbers.status(), who);
  return TorchStatus(who, [&] { reducer_->RestoreLayout(*numbers); });
}

void Replica::BeforeForward() {
  ThrowIfError(reducer_->Explained(TorchStatus("", [this] { PrepareForward(); })));
}

// The exchanges here have PyTorch's order.
void Replica::PrepareForward() {
  const bool computes_gradients = c10::GradMode::is_enabled();
  if (computes_gradients) {
    reducer_->PrepareForward(Syncs());
    reducer_->recorder().BeginForward();
  }
  if (casts_) casts_->Restore();
  ExchangeBeforeForward(computes_gradients);
  if (computes_gradients) reducer_->recorder().BeginCompute();
  if (!casts_) return;
  casts_->Cast();
  if (computes_gradients) reducer_->ReinstallHooks();
}

// The exchanges have PyTorch's order.
void Replica::ExchangeBeforeForward(bool computes_gradients) {
  if (join_ && computes_gradients && reducer_->captured()) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
        "rank ", group_->rank(),
        ": a CUDA graph cannot hold this step: under Join the host must learn which ranks have inputs left")));
  }
  if (options_.virtual_ranks > 0) {
    CheckInVirtualRank();
    if (virtual_step_.forwards++ > 0) return;
  }
  if (join_ && join_->announce) AnnounceNotFinished();
  if (join_ && !join_->divide_by_initial_world_size) reducer_->SetDivisor(join_->progress->active);
  if (computes_gradients) reducer_->RebuildIfDue();
  if (BroadcastsBuffers()) BroadcastBuffers();
  if (options_.virtual_ranks > 0) SaveBuffers(virtual_step_.first_buffers);
  if (join_) ThrowIfError(group_->AllReduce(at::full({1}, sync_ ? 1.0f : 0.0f, at::device(device()))));
}

void Replica::AfterForward() {
  broadcast_buffers_ = (c10::GradMode::is_enabled() && sync_) || options_.virtual_ranks > 0;
  if (c10::GradMode::is_enabled()) {
    reducer_->recorder().EndForward();
  } else if (casts_) {
    casts_->Restore();
  }
}

// Virtual ranks.

void Replica::CheckInVirtualRank() const {
  if (virtual_step_.current < 0) {
    ThrowIfError(absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(),
                                                            ": with Options::virtual_ranks, call forward in the loop "
                                                            "over VirtualRanks(), or use module() for evaluation")));
  }
  if (join_) {
    ThrowIfError(
        absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(), ": virtual_ranks does not support Join")));
  }
}

void Replica::BeginVirtualStep(int64_t step) {
  if (options_.virtual_ranks == 0) return;
  reducer_->BeginVirtualStep();
  virtual_step_ = VirtualStep();
  virtual_step_.number = step;
}

void Replica::BeginVirtualRank(int virtual_rank) {
  if (options_.virtual_ranks == 0) return;
  virtual_step_.current = virtual_rank;
  if (virtual_rank != virtual_begin()) RestoreBuffers(virtual_step_.first_buffers);
  at::manual_seed(SeedOf(options_.virtual_seed, virtual_step_.number, virtual_rank));
}

void Replica::EndVirtualRank() {
  if (options_.virtual_ranks == 0) return;
  const int ended = std::exchange(virtual_step_.current, -1);
  if (ended == 0) SaveBuffers(virtual_step_.kept_buffers);
  if (ended + 1 < virtual_end()) {
    reducer_->TakeVirtualRank();
  } else if (virtual_begin() == 0) {
    RestoreBuffers(virtual_step_.kept_buffers);
  }
}

// A rank with one virtual rank need not.
void Replica::SaveBuffers(std::vector<at::Tensor>& saved) const {
  if (virtual_end() - virtual_begin() == 1) return;
  const c10::NoGradGuard no_grad;
  saved.clear();
  for (const at::Tensor& buffer : buffers_) saved.push_back(buffer.clone());
}

void Replica::RestoreBuffers(const std::vector<at::Tensor>& saved) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < saved.size(); ++i) buffers_[i].copy_(saved[i]);
}

at::Tensor Replica::ChangeInput(const at::Tensor& input) const {
  if (!input.defined()) return input;
  at::Tensor changed = input;
  if (!options_.device_ids.empty()) changed = changed.to(options_.device_ids.front());
  if (casts_ && changed.is_floating_point()) changed = changed.to(*options_.mixed_precision->param_dtype);
  return changed;
}

std::vector<at::Tensor> Replica::ChangeOutputs(std::vector<at::Tensor> outputs) const {
  if (options_.output_device) {
    for (at::Tensor& output : outputs) {
      if (output.defined()) output = output.to(*options_.output_device);
    }
  }
  if (!reducer_->NeedsSink() || !c10::GradMode::is_enabled()) return outputs;
  return PassThroughSink(outputs, [reducer = std::weak_ptr<Reducer>(reducer_)] {
    if (const auto alive = reducer.lock()) alive->BeginBackward();
  });
}

// Under Join: each rank that has inputs adds one.
void Replica::AnnounceNotFinished() {
  ThrowIfError(join_->progress->stopped);
  const at::Tensor active = at::full({1}, 1.0f, at::device(device()));
  ThrowIfError(group_->AllReduce(active));
  if (join_->stop_together) {
    const at::Tensor finished = at::full({1}, 0.0f, at::device(device()));
    const bool named = comm::internal::GroupAccess::OnlyLockstepRanks(*group_);
    ThrowIfError(group_->AllReduce(finished, named ? comm::ReduceOp::kMax : comm::ReduceOp::kSum));
    const int rank = static_cast<int>(finished.item<float>()) - 1;
    if (rank >= 0) {
      join_->progress->stopped = absl::OutOfRangeError(
          absl::StrCat("rank ", group_->rank(), " stops: ", named ? absl::StrCat("rank ", rank) : "another rank",
                       " has no inputs left"));
      ThrowIfError(join_->progress->stopped);
    }
  }
  join_->progress->active = static_cast<int>(active.item<float>());
}

int Replica::AnyRank(bool candidate) {
  const at::Tensor rank = at::full({1}, candidate ? group_->rank() : -1, at::device(device()).dtype(at::kLong));
  ThrowIfError(group_->AllReduce(rank, comm::ReduceOp::kMax));
  return static_cast<int>(rank.item<int64_t>());
}

void Replica::BroadcastBuffers() {
  ThrowIfError(BroadcastCoalesced(*group_, buffers_, join_ ? AnyRank(/*candidate=*/true) : 0));
}

void Replica::ShadowStep() {
  reducer_->RebuildIfDue();
  if (BroadcastsBuffers()) ThrowIfError(BroadcastCoalesced(*group_, buffers_, AnyRank(/*candidate=*/false)));
  const at::Tensor synced = at::full({1}, 0.0f, at::device(device()));
  ThrowIfError(group_->AllReduce(synced));
  broadcast_buffers_ = synced.item<float>() != 0;
  if (broadcast_buffers_) reducer_->ShadowBackward();
}

}  // namespace lockstep::ddp::internal
