#include "lockstep/ddp/internal/reducer.h"

#include <c10/core/GradMode.h>
#include <malloc.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/ddp/internal/capture_check.h"
#include "lockstep/ddp/internal/layout_agreement.h"
#include "lockstep/ddp/internal/slot_requests.h"
#include "lockstep/ddp/internal/stream_capture.h"
#include "lockstep/ddp/statistics.h"

namespace lockstep::ddp::internal {
namespace {

std::vector<std::string> Names(const std::vector<ReducedParameter>& parameters) {
  std::vector<std::string> names;
  for (const ReducedParameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

std::vector<at::Tensor> Tensors(const std::vector<ReducedParameter>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const ReducedParameter& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

BucketPlan MakePlan(const std::vector<ReducedParameter>& parameters, const ReducerOptions& options) {
  std::vector<PlannedParameter> planned;
  for (const ReducedParameter& p : parameters) {
    const BucketItem item{static_cast<int64_t>(p.tensor.nbytes()), p.tensor.scalar_type(), p.tensor.device(), p.sparse};
    planned.push_back({p.name, item, p.delayed});
  }
  return BucketPlan(std::move(planned), {options.first_limits, options.limits},
                    /*may_change=*/options.static_graph || !options.find_unused_parameters);
}

// The device whose clock times the steps: the GPU that has all parameters. Times of two GPUs cannot be compared.
std::optional<c10::Device> TimedDevice(const std::vector<ReducedParameter>& parameters) {
  const c10::Device device = parameters.front().tensor.device();
  const bool on_one = std::all_of(parameters.begin(), parameters.end(), [device](const ReducedParameter& parameter) {
    return parameter.tensor.device() == device;
  });
  return on_one && device.is_cuda() ? std::make_optional(device) : std::nullopt;
}

UsedParameters MakeUsed(const std::vector<ReducedParameter>& parameters, const ReducerOptions& options) {
  if (!options.find_unused_parameters && !options.static_graph) return UsedParameters();
  return UsedParameters(static_cast<int>(parameters.size()), parameters.front().tensor.device(),
                        /*each_step=*/!options.static_graph);
}

GradientBucketsOptions BucketsOptions(const std::vector<ReducedParameter>& parameters, comm::ProcessGroup* group,
                                      const ReducerOptions& options, std::function<bool(int)> averaged_elsewhere) {
  GradientBucketsOptions result;
  result.rank = group->rank();
  result.reduce_dtype = options.reduce_dtype;
  result.gradient_as_bucket_view = options.gradient_as_bucket_view;
  result.request_slots = GradientAllocatorInstalled() && parameters.front().tensor.is_cpu() && !options.reduce_dtype;
  result.averaged_elsewhere = std::move(averaged_elsewhere);
  result.allocate = [group](int64_t numel, at::ScalarType dtype) { return group->AllocateShared({numel}, dtype); };
  return result;
}

}  // namespace

class Reducer::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(Reducer* reducer, int parameter) : reducer_(reducer), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    reducer_->OnGradient(parameter_, inputs.empty() ? at::Tensor() : inputs.front());
    return outputs;
  }

  const Reducer* reducer() const { return reducer_; }

 private:
  Reducer* const reducer_;  // its destructor removes this hook
  const int parameter_;
};

Reducer::Reducer(std::vector<ReducedParameter> parameters, comm::ProcessGroup* group, ReducerOptions options)
    : parameters_(std::move(parameters)),
      group_(group),
      options_(std::move(options)),
      recorder_(group->rank(), TimedDevice(parameters_)),
      plan_(MakePlan(parameters_, options_)),
      used_(MakeUsed(parameters_, options_)),
      buckets_(
          &parameters_, &used_,
          BucketsOptions(parameters_, group, options_, [this](int parameter) { return AveragedByAnother(parameter); })),
      partial_(options_.virtual_ranks > 0 ? std::make_unique<PartialGradients>(group, options_.virtual_ranks)
                                          : nullptr),
      reductions_(group, &used_, &recorder_, options_.skip_all_reduce_unused_params, partial_.get()),
      non_finite_(options_.non_finite, options_.virtual_ranks > 0, group, &parameters_, &buckets_, &recorder_),
      pass_(group->rank(), Names(parameters_)),
      note_(group),
      hooks_(Tensors(parameters_), [this](int parameter) { return std::make_unique<Hook>(this, parameter); }) {
  if (options_.static_graph) graph_.emplace(group->rank(), Names(parameters_));
  BuildBuckets();
}

// Before a forward.

void Reducer::PrepareForward(bool sync, bool outside_no_sync) {
  if (in_backward()) AbandonBackward();
  ThrowIfError(pass_.TakeError());
  ThrowIfError(group_->failure());
  if (const int replaced = hooks_.Replaced(); replaced >= 0) {
    ThrowIfError(
        absl::FailedPreconditionError(absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[replaced].name,
                                                   " is no longer the one that was wrapped, so its gradient would not "
                                                   "be averaged: call module->to(...) before ddp::Wrap")));
  }
  sync_ = sync;
  outside_no_sync_ = outside_no_sync;
  LookForCapture();
}

void Reducer::LookForCapture() {
  captured_ = StreamIsCaptured(parameters_.front().tensor.device());
  recorder_.SetCaptured(captured_);
  if (!captured_) return;
  const auto sparse = std::find_if(parameters_.begin(), parameters_.end(), [](const auto& p) { return p.sparse; });
  CapturedStep step;
  step.layout_may_change = plan_.may_change();
  step.averaged = sync_;
  step.finds_unused = FindsUnused();
  step.looks_for_non_finite = non_finite_.looks();
  step.virtual_ranks = partial_ != nullptr;
  if (sparse != parameters_.end()) step.sparse_parameter = sparse->name;
  ThrowIfError(CheckCapture(group_->rank(), step));
}

void Reducer::RebuildIfDue() {
  if (!plan_.ChangeIsDue()) return;
  auto layout = LayoutOfRank0(*group_, plan_.Next(), parameters_.front().tensor.device());
  ThrowIfError(layout.status());
  if (plan_.Adopt(*std::move(layout))) BuildBuckets();
  // Buckets have replaced the first backward's gradients, and some gradients moved. malloc would keep their memory, as
  // much as all buckets have, in addition to what forward is about to allocate.
  malloc_trim(0);
}

void Reducer::RestoreLayout(const Layout& layout) {
  plan_.Adopt(layout);
  BuildBuckets();
}

void Reducer::BuildBuckets() {
  buckets_.Build(plan_.layout());
  if (partial_) partial_->Build(buckets_);
  reductions_.SetBuckets(buckets_);
  pass_.SetBuckets(plan_.layout(), plan_.ordered());
  std::vector<BucketStatistics> statistics;
  for (int i = 0; i < buckets_.size(); ++i) {
    BucketStatistics figures;
    figures.index = i;
    figures.bytes = buckets_[i].sparse ? 0 : static_cast<int64_t>(buckets_[i].buffer.nbytes());
    figures.parameters = std::make_shared<const std::vector<std::string>>(buckets_[i].for_hook.names);
    statistics.push_back(std::move(figures));
  }
  recorder_.SetBuckets(std::move(statistics));
}

// Virtual ranks.

void Reducer::BeginVirtualStep() {
  const c10::NoGradGuard no_grad;
  partial_->BeginStep();
  non_finite_.Forget();
  first_gradients_.clear();
  if (virtual_end() - virtual_begin() == 1) return;
  for (const ReducedParameter& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    first_gradients_.push_back(gradient.defined() ? gradient.clone() : gradient);
  }
}

void Reducer::TakeVirtualRank() {
  non_finite_.LookAtGradients(partial_->next());
  partial_->TakeLeaf(parameters_, buckets_, reductions_.Divisor());
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    gradient = first_gradients_[i].defined() ? first_gradients_[i].clone() : at::Tensor();
  }
}

void Reducer::BeginVirtualRank(int virtual_rank, int64_t step) {
  virtual_rank_ = virtual_rank;
  step_ = step;
  passes_ = 0;
}

std::string Reducer::TurnInWords() const {
  return absl::StrCat("rank ", group_->rank(), ": virtual rank ", virtual_rank_, " of step ", step_);
}

void Reducer::EndVirtualRank() {
  if (passes_ > 0) return;
  ThrowWithNote(absl::FailedPreconditionError(
      absl::StrCat(TurnInWords(), " ran no backward outside of NoSync, so the other ranks would wait: expected one")));
}

void Reducer::ThrowWithNote(const absl::Status& error) {
  note_.Leave(std::string(error.message())).IgnoreError();  // `error` says more
  ThrowIfError(error);
}

// From autograd's hook for a gradient to the all_reduce of its bucket.

void Reducer::OnOutput() {
  if (hooks_.AccumulatedInBackward()) BeginBackward();
}

void Reducer::OnGradient(int parameter, const at::Tensor& arriving) {
  if (!in_backward_ && !own_graph_.InBackward()) return;
  // It may arrive undefined, from an output that the loss does not depend on.
  if (parameters_[parameter].tensor.grad().defined()) used_.Mark(parameter);
  BeginBackward();
  if (!pass_.active()) return;
  recorder_.GradientReady();
  if (graph_) {
    const absl::StatusOr<bool> complete = graph_->Arrive(parameter);
    ThrowIfError(complete.status());
    if (!*complete) return;
  }
  DeliverFinished();
  Take(parameter, arriving);
  plan_.RecordReady(parameter);
  StartFull(arriving);
  if (parameter == options_.delay_until) StartDelayed(arriving);
}

// The reducer whose hook runs first averages the parameter. The hooks have the same order on all ranks.
bool Reducer::AveragedByAnother(int parameter) const {
  const auto& hooks = hooks_.On(parameter);
  if (hooks.size() == 1) return false;
  for (const auto& hook : hooks) {
    const auto* other = dynamic_cast<const Hook*>(hook.get());
    if (!other) continue;
    if (other->reducer() == this) return false;
    if (other->reducer()->pass_.backward() == pass_.backward()) return true;
  }
  return false;
}

// The optimizer that steps parameters as they come must have their averages.
void Reducer::CheckOwn(const std::vector<int>& parameters) const {
  for (const int i : parameters) {
    if (!AveragedByAnother(i)) continue;
    ThrowIfError(absl::FailedPreconditionError(
        absl::StrCat("rank ", group_->rank(), ": parameter ", parameters_[i].name,
                     " is averaged by another wrapper in this backward, so an OverlappedOptimizer of this one cannot "
                     "step it: expected one backward for each wrapper")));
  }
}

void Reducer::CountPass() {
  if (!partial_ || !outside_no_sync_ || ++passes_ == 1) return;
  ThrowIfError(absl::FailedPreconditionError(absl::StrCat(
      TurnInWords(), " runs a second backward outside of NoSync: expected all but its last under a NoSync")));
}

// Called several times in a backward.
void Reducer::BeginBackward() {
  if (std::exchange(in_backward_, true)) return;
  CallAtEndOfBackward([this] { FinishBackward(); });
  CountPass();
  if (!sync_) return;
  LookForCapture();
  pass_.Begin(torch::autograd::get_current_graph_task_id());
  if (graph_) graph_->BeginBackward();
  buckets_.BeginBackward();
  if (LooksForUnused() && !LearnsGraph()) TakeUnused();
}

// Parameters that this backward will not reach are ready at once.
void Reducer::TakeUnused() {
  const std::vector<int> unused = graph_ ? graph_->Unused() : hooks_.NotInBackward();
  if (FindsUnused() && options_.skip_all_reduce_unused_params) {
    used_.MarkAllBut(unused);
    used_.StartExchange(*group_);
    ThrowIfError(Explained(used_.WaitForAll()));
  }
  for (const int i : unused) {
    if (!pass_.ready(i)) Take(i, /*arriving=*/at::Tensor());
  }
}

// Delivers buckets whose all_reduce is over while backward goes on. It runs before the gradient that has just arrived
// can fill a bucket, since autograd still refers to that gradient.
void Reducer::DeliverFinished() {
  // Which parameters any rank used, and whether all gradients are finite, is only available at the end; in a CUDA graph
  // it never is.
  if (LooksForUnused() || captured_ || non_finite_.looks()) return;
  while (pass_.next_delivery() < pass_.next_start()) {
    const int bucket = pass_.next_delivery();
    if (!reductions_.Done(bucket)) return;
    const absl::StatusOr<at::Tensor> result = reductions_.Wait(buckets_[bucket]);
    ThrowIfError(Explained(result.status()));
    Deliver(bucket, *result);
  }
}

void Reducer::Take(int parameter, const at::Tensor& arriving) {
  ThrowIfError(pass_.MarkReady(parameter));
  const int bucket = pass_.bucket_of(parameter);
  buckets_.Fill(parameter, arriving, reductions_.DivisorOnFill(buckets_[bucket]));
  if (pass_.full(bucket)) recorder_.BucketReady(bucket);
}

void Reducer::StartFull(const at::Tensor& arriving) {
  while (pass_.NextToStart() != BackwardPass::kNone) Start(pass_.NextToStart(), arriving);
}

void Reducer::StartDelayed(const at::Tensor& arriving) {
  const int bucket = pass_.DelayedToStart();
  if (bucket == BackwardPass::kNone) return;
  for (const int i : buckets_[bucket].parameters) {
    if (pass_.ready(i)) continue;
    pass_.Fail(pass_.NotBefore(i, options_.delay_until));
    Take(i, /*arriving=*/at::Tensor());
  }
  Start(bucket, arriving);
}

void Reducer::Start(int bucket, const at::Tensor& arriving) {
  non_finite_.LookAtBucket(bucket, partial_ ? partial_->next() : group_->rank());
  buckets_.ReplaceGradients(bucket, arriving);
  reductions_.Start(buckets_[bucket]);
  pass_.MarkStarted(bucket);
}

// The end of a backward.

void Reducer::FinishBackward() {
  if (!pass_.active()) {
    EndLocalBackward();
    return;
  }
  if (LearnsGraph()) {
    FinishLearning();
    return;
  }
  if (!FindsUnused() && !pass_.NotReady().empty()) {
    const absl::Status error = pass_.NoGradient();
    pass_.TakeError().IgnoreError();  // of a delayed parameter: this one says more
    pass_.Fail(error);
    pass_.Fail(note_.Leave(std::string(error.message())));
  }
  if (graph_) {
    for (const int i : graph_->Unused()) plan_.RecordReady(i);
  }
  CompleteBackward();
}

void Reducer::FinishLearning() {
  // A rank that had no inputs when the others learned the graph (see ShadowBackward) learns its part later.
  const bool late = used_.final();
  graph_->SetKnown();
  if (!late) used_.StartExchange(*group_);
  CompleteBackward();
  used_.MakeFinal();
  plan_.ForgetReadyOrder();
  if (late) plan_.AssumeReadyOrder();
}

// Every rank reduces every bucket, even if gradients are missing. Otherwise the other ranks would wait for it.
void Reducer::CompleteBackward() {
  const at::Tensor none;
  for (const int i : pass_.NotReady()) Take(i, none);
  StartFull(none);
  StartDelayed(none);
  if (FindsUnused() && !options_.skip_all_reduce_unused_params) used_.StartExchange(*group_);
  const absl::Status reduced = WaitAndDeliver();
  recorder_.EndBackward();
  EndBackward(/*complete=*/!pass_.failed() && reduced.ok());
  ThrowIfError(Explained(reduced));
}

// For the buckets that have not been delivered. Waits for all of them even if one fails, since the next step writes to
// them.
absl::StatusOr<std::vector<at::Tensor>> Reducer::WaitForResults() {
  absl::Status status = reductions_.Advance();
  std::vector<at::Tensor> results;
  for (int i = pass_.next_delivery(); i < buckets_.size(); ++i) {
    absl::StatusOr<at::Tensor> result = reductions_.Wait(buckets_[i]);
    status.Update(result.status());
    if (result.ok()) results.push_back(*std::move(result));
  }
  status.Update(used_.WaitForAll());
  if (!status.ok()) return status;
  return results;
}

absl::Status Reducer::WaitAndDeliver() {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<at::Tensor> results, WaitForResults());
  LOCKSTEP_RETURN_IF_ERROR(non_finite_.LookAtResults(pass_.next_delivery(), results));
  for (const at::Tensor& result : results) Deliver(pass_.next_delivery(), result);
  return absl::OkStatus();
}

void Reducer::Deliver(int bucket, const at::Tensor& result) {
  const c10::NoGradGuard no_grad;
  pass_.MarkDelivered();
  buckets_.Deliver(bucket, result);
  if (!on_bucket_) return;
  CheckOwn(buckets_[bucket].parameters);
  on_bucket_(buckets_[bucket].parameters);
}

// For a backward that threw. Finishes the reductions that have started, so the ranks stay in step if all of them threw
// at the same place.
void Reducer::AbandonBackward() {
  if (!pass_.active()) {
    EndLocalBackward();
    return;
  }
  pass_.Fail(reductions_.WaitForStarted(buckets_));
  EndBackward(/*complete=*/false);
}

void Reducer::EndBackward(bool complete) {
  reductions_.End();
  buckets_.EndBackward();
  pass_.End();
  if (graph_) graph_->EndBackward();
  if (!complete) plan_.ForgetReadyOrder();  // an incomplete order does not determine a layout
  used_.EndStep();
  non_finite_.Forget();
  EndLocalBackward();
}

void Reducer::EndLocalBackward() {
  in_backward_ = false;
  if (on_end_) on_end_();
}

void Reducer::ShadowBackward() {
  const c10::NoGradGuard no_grad;
  const bool learns_graph = graph_ && !used_.final();
  if (partial_) BeginVirtualStep();
  const bool used_first = learns_graph || (FindsUnused() && options_.skip_all_reduce_unused_params);
  if (used_first) used_.StartExchange(*group_);
  if (used_first && !learns_graph) ThrowIfError(used_.WaitForAll());
  for (int i = 0; i < buckets_.size(); ++i) {
    buckets_.FillWithZeros(i);
    reductions_.Start(buckets_[i]);
  }
  if (FindsUnused() && !used_first) used_.StartExchange(*group_);
  const absl::StatusOr<std::vector<at::Tensor>> results = WaitForResults();
  absl::Status reduced = results.status();
  if (reduced.ok()) reduced = non_finite_.LookAtResults(/*first=*/0, *results);
  if (!learns_graph) plan_.AssumeReadyOrder();  // when other ranks learn a static graph, they get no order
  if (graph_) used_.MakeFinal();
  EndBackward(/*complete=*/true);
  ThrowIfError(Explained(reduced));
}

}  // namespace lockstep::ddp::internal
