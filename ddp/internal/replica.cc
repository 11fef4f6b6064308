#include "lockstep/ddp/internal/replica.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/seed.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/flat.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/ddp/internal/autograd_hooks.h"
#include "lockstep/ddp/internal/check_options.h"
#include "lockstep/ddp/internal/known_hook.h"
#include "lockstep/ddp/internal/layout_agreement.h"

namespace lockstep::ddp::internal {
namespace {

// Calls f(weight, options) for each embedding.
template <typename F>
void ForEachEmbedding(const torch::nn::Module& module, const F& f) {
  const auto look_at = [&f](const torch::nn::Module& one) {
    if (const auto* embedding = one.as<torch::nn::EmbeddingImpl>()) f(embedding->weight, embedding->options);
    if (const auto* bag = one.as<torch::nn::EmbeddingBagImpl>()) f(bag->weight, bag->options);
  };
  look_at(module);
  for (const auto& child : module.modules(/*include_self=*/false)) look_at(*child);
}

// The parameters whose module asks for sparse gradients.
std::set<const at::TensorImpl*> SparseParameters(const torch::nn::Module& module) {
  std::set<const at::TensorImpl*> sparse;
  ForEachEmbedding(module, [&sparse](const at::Tensor& weight, const auto& options) {
    if (options.sparse()) sparse.insert(weight.unsafeGetTensorImpl());
  });
  return sparse;
}

// Each rank's forward shortens the rows that its own inputs look up.
void WarnOfMaxNorm(const torch::nn::Module& module, const std::vector<NamedTensor>& trained) {
  ForEachEmbedding(module, [&trained](const at::Tensor& weight, const auto& options) {
    if (!options.max_norm()) return;
    for (const NamedTensor& parameter : trained) {
      if (!parameter.tensor.is_same(weight)) continue;
      LOG(WARNING) << "ddp::Wrap: max_norm of the embedding " << parameter.name
                   << " makes the ranks' parameters differ, since forward renormalizes only the rows that its rank "
                      "uses: renormalize the rows of the weight after the optimizer's step instead";
    }
  });
}

}  // namespace

Replica::Replica(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options)
    : group_(group), options_(options), changes_(module, "ddp::Wrap", options.parameters_to_ignore) {
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
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    buffers_.push_back(item.value());
    running_statistics_.push_back(absl::EndsWith(item.key(), "running_mean") ||
                                  absl::EndsWith(item.key(), "running_var"));
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
  if (comm::internal::GroupAccess::OnlyLockstepRanks(*group_)) {
    const std::string options =
        absl::StrCat("virtual_ranks ", options_.virtual_ranks, " and virtual_seed ", options_.virtual_seed);
    LOCKSTEP_RETURN_IF_ERROR(CheckSameParameters(*group_, named_parameters_, options));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(options_, module, trained_, group_->size()));
  if (Virtual() && !comm::internal::GroupAccess::OnlyLockstepRanks(*group_))
    return absl::InvalidArgumentError("virtual_ranks needs a group without Python ranks, which do not know them");
  if (options_.init_sync) {
    if (!comm::internal::GroupAccess::OnlyLockstepRanks(*group_))
      LOCKSTEP_RETURN_IF_ERROR(CheckSameParametersAsPython(*group_, trained_));
    LOCKSTEP_RETURN_IF_ERROR(SynchronizeFrom(0));
  }
  if (group_->rank() == 0 && group_->size() > 1) WarnOfMaxNorm(module, trained_);
  return TorchStatus("", [&] {
    const std::set<const at::TensorImpl*> sparse = SparseParameters(module);
    const std::set<std::string> delayed(options_.delay_all_reduce_named_params.begin(),
                                        options_.delay_all_reduce_named_params.end());
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
  return comm::internal::BroadcastCoalesced(*group_, state, rank);
}

absl::Status Replica::RegisterHook(CommunicationHook hook) {
  const std::string who = absl::StrCat("rank ", group_->rank(), ": RegisterHook");
  if (!hook) return absl::InvalidArgumentError(absl::StrCat(who, ": the hook is empty"));
  if (reducer_->has_hook()) return absl::FailedPreconditionError(absl::StrCat(who, ": there is a hook already"));
  if (reducer_->in_backward()) return absl::FailedPreconditionError(absl::StrCat(who, ": backward is running"));
  if (!Virtual()) {
    reducer_->SetHook(std::move(hook));
    return absl::OkStatus();
  }
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckHook(hook), who));
  reducer_->SetHookAverage(*hook.target<KnownHook>()->average);
  return absl::OkStatus();
}

// With virtual ranks.
absl::Status Replica::CheckHook(const CommunicationHook& hook) const {
  if (virtual_step_.current >= 0)
    return absl::FailedPreconditionError("a step is under way: call it outside of the loop over VirtualRanks()");
  const auto* known = hook.target<KnownHook>();
  if (!known || !known->average) {
    return absl::InvalidArgumentError(absl::StrCat(
        "with ", known ? known->name : "a hook of the program",
        ", the result would depend on the number of ranks, but "
        "virtual_ranks is set: expected AllReduce, Fp16Compress, Bf16Compress, or a wrapper of AllReduce"));
  }
  for (const NamedTensor& parameter : trained_) {
    if (!known->average->dtype || !parameter.tensor.is_complex()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", parameter.name, " has dtype ", c10::toString(parameter.tensor.scalar_type()),
                     ", which cannot be compressed to ", c10::toString(*known->average->dtype)));
  }
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

void Replica::BeforeForward(const torch::nn::Module& module) {
  ThrowIfError(reducer_->Explained(TorchStatus("", [&] { PrepareForward(module); })));
  if (c10::GradMode::is_enabled()) reducer_->own_graph().BeginForward();
}

// The exchanges here have PyTorch's order.
void Replica::PrepareForward(const torch::nn::Module& module) {
  const bool computes_gradients = c10::GradMode::is_enabled();
  if (Virtual()) CheckInVirtualRank();
  if (computes_gradients) {
    const absl::Status unchanged = changes_.Look(module);
    if (!unchanged.ok()) reducer_->ThrowWithNote(Annotate(unchanged, absl::StrCat("rank ", group_->rank())));
    reducer_->PrepareForward(Syncs(), sync_);
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
  if (Virtual() && virtual_step_.forwards++ > 0) return;
  if (join_ && join_->announce) AnnounceNotFinished();
  if (join_ && !join_->divide_by_initial_world_size) reducer_->SetDivisor(join_->progress->active);
  if (computes_gradients) reducer_->RebuildIfDue();
  if (BroadcastsBuffers()) BroadcastBuffers(Virtual() ? virtual_step_.ranks.back() : group_->rank());
  if (Virtual()) {
    SaveBuffers(virtual_step_.first_buffers);
    for (int skipped = virtual_begin(); skipped < virtual_step_.ranks.front(); ++skipped) reducer_->SkipVirtualRank();
  }
  if (join_) ThrowIfError(group_->AllReduce(at::full({1}, sync_ || Virtual() ? 1.0f : 0.0f, at::device(device()))));
}

void Replica::AfterForward() {
  broadcast_buffers_ = (c10::GradMode::is_enabled() && sync_) || Virtual();
  if (c10::GradMode::is_enabled()) {
    reducer_->own_graph().EndForward();
    reducer_->recorder().EndForward();
  } else if (casts_) {
    casts_->Restore();
  }
}

// Virtual ranks.

void Replica::CheckInVirtualRank() const {
  if (virtual_step_.current >= 0) return;
  ThrowIfError(absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(),
                                                          ": with Options::virtual_ranks, call forward in the loop "
                                                          "over VirtualRanks(), or use module() for evaluation")));
}

void Replica::CheckInputs(const std::vector<int>& with_inputs) const {
  const bool ascending =
      std::adjacent_find(with_inputs.begin(), with_inputs.end(), std::greater_equal<>()) == with_inputs.end();
  const bool own =
      with_inputs.empty() || (with_inputs.front() >= virtual_begin() && with_inputs.back() < virtual_end());
  const std::string who = absl::StrCat("rank ", group_->rank(), ": VirtualRanks: ");
  if (!ascending || !own) {
    ThrowIfError(absl::InvalidArgumentError(absl::StrCat(who, "expected some of the virtual ranks ", virtual_begin(),
                                                         " to ", virtual_end() - 1, " in ascending order, found ",
                                                         absl::StrJoin(with_inputs, ", "))));
  }
  if (!join_ && static_cast<int>(with_inputs.size()) < virtual_end() - virtual_begin()) {
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat(who, with_inputs.size(), " of ", virtual_end() - virtual_begin(),
                     " virtual ranks have inputs: only under a Join may some have none")));
  }
}

void Replica::BeginVirtualStep(int64_t step, const std::optional<std::vector<int>>& with_inputs) {
  if (!left_early_.ok()) reducer_->ThrowWithNote(std::exchange(left_early_, absl::OkStatus()));
  if (with_inputs) CheckInputs(*with_inputs);
  virtual_step_ = VirtualStep();
  virtual_step_.number = step;
  if (with_inputs) {
    virtual_step_.ranks = *with_inputs;
  } else {
    for (int v = virtual_begin(); v < virtual_end(); ++v) virtual_step_.ranks.push_back(v);
  }
  if (!Virtual() || virtual_step_.ranks.empty()) return;
  last_with_inputs_ = virtual_step_.ranks.back();
  reducer_->BeginVirtualStep();
}

void Replica::BeginVirtualRank(size_t place) {
  if (!Virtual()) return;
  virtual_step_.current = virtual_step_.ranks[place];
  reducer_->BeginVirtualRank(virtual_step_.current, virtual_step_.number);
  if (place > 0) RestoreBuffers(virtual_step_.first_buffers);
  at::manual_seed(SeedOf(options_.virtual_seed, virtual_step_.number, virtual_step_.current));
}

void Replica::EndVirtualRank(size_t place) {
  if (!Virtual()) return;
  const int ended = std::exchange(virtual_step_.current, -1);
  reducer_->EndVirtualRank();
  if (ended == 0 || join_) SaveBuffers(kept_buffers_[ended]);
  if (place + 1 < virtual_step_.ranks.size()) {
    reducer_->TakeVirtualRank();
    for (int skipped = ended + 1; skipped < virtual_step_.ranks[place + 1]; ++skipped) reducer_->SkipVirtualRank();
  } else {
    RestoreBuffersOfRank0();
  }
}

void Replica::LeaveVirtualStep(bool thrown) {
  if (!Virtual()) return;
  const int left = std::exchange(virtual_step_.current, -1);
  if (left < 0) return;
  if (left > virtual_step_.ranks.front()) RestoreBuffersOfRank0();  // as if it had virtual rank 0 alone
  if (thrown) return;
  left_early_ = absl::FailedPreconditionError(
      absl::StrCat("rank ", group_->rank(), ": the loop over VirtualRanks() of step ", virtual_step_.number,
                   " was left at virtual rank ", left, ": expected all of it, or an exception"));
  LOG(ERROR) << left_early_.message();  // there may be no next step
}

// Rank 0 has virtual rank 0's. Without inputs that has what all began with.
void Replica::RestoreBuffersOfRank0() {
  if (virtual_begin() != 0) return;
  RestoreBuffers(virtual_step_.ranks.front() == 0 ? kept_buffers_[0] : virtual_step_.first_buffers);
}

// A rank with one virtual rank need not.
void Replica::SaveBuffers(Buffers& saved) const {
  if (virtual_end() - virtual_begin() == 1) return;
  const c10::NoGradGuard no_grad;
  saved.clear();
  for (const at::Tensor& buffer : buffers_) saved.push_back(buffer.clone());
}

void Replica::RestoreBuffers(const Buffers& saved) {
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < saved.size(); ++i) buffers_[i].copy_(saved[i]);
}

// Under Join, after a step.
void Replica::RestoreBuffersOf(int virtual_rank) {
  if (const auto kept = kept_buffers_.find(virtual_rank); kept != kept_buffers_.end()) RestoreBuffers(kept->second);
}

at::Tensor Replica::ChangeInput(const at::Tensor& input) const {
  if (!input.defined()) return input;
  at::Tensor changed = input;
  if (!options_.device_ids.empty()) changed = changed.to(options_.device_ids.front());
  if (casts_ && changed.is_floating_point()) changed = changed.to(*options_.mixed_precision->param_dtype);
  return changed;
}

at::Tensor Replica::ChangeOutput(const at::Tensor& output) const {
  return output.defined() ? output.to(*options_.output_device) : output;
}

void Replica::WatchOutput(const at::Tensor& output) const {
  if (!output.requires_grad()) return;
  CallInBackwardThrough(output, [reducer = std::weak_ptr<Reducer>(reducer_)] {
    if (const auto alive = reducer.lock()) alive->OnOutput();
  });
}

// Join.

void Replica::SetJoinMode(std::optional<JoinMode> mode) {
  join_ = std::move(mode);
  kept_buffers_.clear();
  last_with_inputs_.reset();
}

// Each rank that has inputs adds one, or the number of its virtual ranks that have.
void Replica::AnnounceNotFinished() {
  ThrowIfError(join_->progress->stopped);
  const std::vector<int>& ranks = virtual_step_.ranks;
  const at::Tensor active = at::full({1}, Virtual() ? static_cast<float>(ranks.size()) : 1.0f, at::device(device()));
  ThrowIfError(group_->AllReduce(active));
  if (join_->stop_together) {
    int highest = -1;  // of this rank's virtual ranks without inputs
    for (int v = virtual_begin(); Virtual() && v < virtual_end(); ++v) {
      if (!std::binary_search(ranks.begin(), ranks.end(), v)) highest = v;
    }
    const at::Tensor finished = at::full({1}, static_cast<float>(highest + 1), at::device(device()));
    const bool named = comm::internal::GroupAccess::OnlyLockstepRanks(*group_);
    ThrowIfError(group_->AllReduce(finished, named ? comm::ReduceOp::kMax : comm::ReduceOp::kSum));
    const int rank = static_cast<int>(finished.item<float>()) - 1;
    if (rank >= 0) {
      const std::string who = named ? absl::StrCat(Virtual() ? "virtual rank " : "rank ", rank) : "another rank";
      join_->progress->stopped =
          absl::OutOfRangeError(absl::StrCat("rank ", group_->rank(), " stops: ", who, " has no inputs left"));
      ThrowIfError(join_->progress->stopped);
    }
  }
  join_->progress->active = static_cast<int>(active.item<float>());
}

// The highest candidate of all ranks, a rank or virtual rank; -1 if a rank has none.
int Replica::HighestRank(int candidate) {
  const at::Tensor highest = at::full({1}, candidate, at::device(device()).dtype(at::kLong));
  ThrowIfError(group_->AllReduce(highest, comm::ReduceOp::kMax));
  return static_cast<int>(highest.item<int64_t>());
}

int Replica::RankOf(int virtual_rank) const {
  if (!Virtual()) return virtual_rank;
  const std::vector<int> bounds = comm::EvenBounds(options_.virtual_ranks, group_->size());
  return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), virtual_rank) - bounds.begin()) - 1;
}

// A backward that is still to come may have saved buffers. Autograd refuses it if one has been written. But a norm that
// trains does not need its running statistics in backward, and if it does not train, the broadcast writes what they
// are. So they are written as variables of their own, which have version counters of their own. On a GPU all buffers
// are, as in PyTorch from 2.12 on: to find out which differ, the host would have to wait.
std::vector<at::Tensor> Replica::BuffersToOverwrite() const {
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const bool saved_in_vain = running_statistics_[i] || !buffers_[i].is_cpu();
    tensors.push_back(saved_in_vain ? buffers_[i].variable_data() : buffers_[i]);
  }
  return tensors;
}

void Replica::BroadcastBuffers(int candidate) {
  const int source = join_ ? HighestRank(candidate) : 0;
  if (join_) RestoreBuffersOf(source);
  ThrowIfError(comm::internal::BroadcastCoalesced(*group_, BuffersToOverwrite(), join_ ? RankOf(source) : 0));
}

void Replica::ShadowStep() {
  if (!join_->divide_by_initial_world_size) reducer_->SetDivisor(join_->progress->active);
  reducer_->RebuildIfDue();
  if (BroadcastsBuffers()) BroadcastBuffers(/*candidate=*/-1);
  const at::Tensor synced = at::full({1}, 0.0f, at::device(device()));
  ThrowIfError(group_->AllReduce(synced));
  broadcast_buffers_ = synced.item<float>() != 0;
  if (broadcast_buffers_) reducer_->ShadowBackward();
}

absl::Status Replica::SynchronizeAtEnd(bool last) {
  const int own = last_with_inputs_.value_or(virtual_end() - 1);
  const int source = HighestRank(last ? own : -1);
  RestoreBuffersOf(source);
  return SynchronizeFrom(RankOf(source));
}

}  // namespace lockstep::ddp::internal
