// Averages gradients over the ranks while backward is still computing others.

#ifndef LOCKSTEP_DDP_INTERNAL_REDUCER_H_
#define LOCKSTEP_DDP_INTERNAL_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/autograd_hooks.h"
#include "lockstep/ddp/internal/backward_pass.h"
#include "lockstep/ddp/internal/bucket_plan.h"
#include "lockstep/ddp/internal/gradient_buckets.h"
#include "lockstep/ddp/internal/known_hook.h"
#include "lockstep/ddp/internal/learned_graph.h"
#include "lockstep/ddp/internal/non_finite.h"
#include "lockstep/ddp/internal/own_graph.h"
#include "lockstep/ddp/internal/partial_gradients.h"
#include "lockstep/ddp/internal/parting_note.h"
#include "lockstep/ddp/internal/reductions.h"
#include "lockstep/ddp/internal/step_recorder.h"
#include "lockstep/ddp/internal/used_parameters.h"
#include "lockstep/ddp/options.h"

namespace lockstep::ddp::internal {

struct ReducerOptions {
  // In bytes: the limits of the first, second, ... bucket of the first layout and of the one that replaces it.
  std::vector<int64_t> first_limits;
  std::vector<int64_t> limits;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool skip_all_reduce_unused_params = false;
  bool gradient_as_bucket_view = false;
  std::optional<c10::ScalarType> reduce_dtype;  // not set: the parameters' dtype
  int delay_until = -1;  // the parameter whose gradient starts the all_reduce of the delayed parameters
  NonFinite non_finite = NonFinite::kIgnore;
  int virtual_ranks = 0;
};

// Owns the hooks on the parameters' gradient accumulators, and tells the parts what to do when a hook runs:
//
//   OnOutput     a backward begins that passes through an output of the wrapper's forward
//   OnGradient   autograd has accumulated a parameter's gradient, in a backward through what the forward computed
//     Take         BackwardPass notes it, GradientBuckets writes it into its slot
//     StartFull    for each bucket that is full now:
//       Start        its slots become the gradients, and Reductions starts its all_reduce or the communication hook
//   FinishBackward, when autograd is done
//     WaitAndDeliver   the averages become the gradients
//
// BucketPlan decides which parameters share a bucket. The first backward uses one bucket per dtype and device; the next
// forward builds the buckets anew, as PyTorch's DistributedDataParallel does. Buckets live in memory that the ranks of
// the group share, if it has such memory.
//
// Other backward passes do not concern it. If several reducers have the same parameter and average in the same
// backward, the first one whose hook runs averages it, and it counts as zero in the buckets of the others.
//
// One thread uses it at a time. Errors are thrown as StatusError, since LibTorch calls it during backward.
class Reducer {
 public:
  // `parameters`: the parameters that require gradients, each once. They and `group` (borrowed) must outlive the
  // reducer.
  Reducer(std::vector<ReducedParameter> parameters, comm::ProcessGroup* group, ReducerOptions options);
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Call it before every forward that computes gradients. `sync`: the backward passes that follow are averaged.
  // `outside_no_sync`: they are, or would be if this were the rank's last virtual rank. Throws
  // the error of the last backward: FailedPrecondition naming the parameters that got no gradient. Also throws
  // FailedPrecondition naming a parameter whose autograd node has been replaced (as by module->to(dtype) after
  // wrapping), and if a CUDA graph is being captured that cannot hold the step.
  void PrepareForward(bool sync, bool outside_no_sync);

  // Returns whether the present step is captured in a CUDA graph: the host does not see its results then.
  bool captured() const { return captured_; }

  // The part of autograd's graph whose backward passes are averaged.
  OwnGraph& own_graph() { return own_graph_; }

  // Call it when a backward passes through an output of forward, in its thread. So the outermost backward is known even
  // if a part of the graph has a backward nested in it, and the parameters that it will not reach are found.
  void OnOutput();

  // This rank's virtual ranks are [virtual_begin(), virtual_end()): without Options::virtual_ranks itself. A step
  // begins with BeginVirtualStep(). Each virtual rank but the last ends with TakeVirtualRank(), after backward passes
  // that were not averaged: adds its gradients to those before it, and gives the parameters the gradients that they had
  // when the step began. SkipVirtualRank() adds zeros instead. The backward of the last one that is averaged averages
  // all; those behind it count as zero.
  int virtual_begin() const { return partial_ ? partial_->begin() : group_->rank(); }
  int virtual_end() const { return partial_ ? partial_->end() : group_->rank() + 1; }
  void BeginVirtualStep();
  void TakeVirtualRank();
  void SkipVirtualRank() { partial_->TakeEmptyLeaf(buckets_); }

  // Each virtual rank must run one backward outside of NoSync. EndVirtualRank() throws FailedPrecondition if it ran
  // none, and leaves a note for the ranks that wait. A second one throws FailedPrecondition. `step` is for errors.
  void BeginVirtualRank(int virtual_rank, int64_t step);
  void EndVirtualRank();

  // Throws `error`. If this rank ends because of it, the others have the reason in their error.
  void ThrowWithNote(const absl::Status& error);

  // Replaces the all_reduce. Not during backward, and not with virtual ranks.
  void SetHook(CommunicationHook hook) { reductions_.SetHook(std::move(hook)); }
  // With virtual ranks: averages as this hook does.
  void SetHookAverage(const HookAverage& average) { partial_->SetAverage(average); }
  bool has_hook() const { return reductions_.has_hook() || (partial_ && partial_->has_average()); }

  // Called with the parameters of each bucket, in order, as soon as its gradients are averaged.
  using BucketCallback = std::function<void(const std::vector<int>& parameters)>;
  void SetBucketCallback(BucketCallback callback) { on_bucket_ = std::move(callback); }
  bool has_bucket_callback() const { return on_bucket_ != nullptr; }

  // Called when a backward has ended, averaged or not, and when one is given up.
  void SetEndCallback(std::function<void()> callback) { on_end_ = std::move(callback); }

  // Gradients are divided by this instead of the number of ranks (or virtual ranks), until the end of the next
  // backward.
  void SetDivisor(int divisor) { reductions_.SetDivisor(divisor); }

  // For a rank that has no inputs left: takes part, with gradients of zero, in the collectives of the other ranks' next
  // backward and next forward.
  void ShadowBackward();
  void RebuildIfDue();

  // Moves the hooks after the parameters got other data (see MixedPrecision).
  void ReinstallHooks() { hooks_.Reinstall(); }

  // The parameters of each bucket, in the order in which the buckets are reduced.
  const Layout& BucketLayout() const { return plan_.layout(); }

  // Layouts for the backward passes to come. On ranks other than 0 the plan follows the rank's own order until the next
  // forward.
  const BucketPlan& plan() const { return plan_; }

  // Builds these buckets, for good. Not during backward.
  void RestoreLayout(const Layout& layout);

  // `error`; if it says that the group failed, followed by the note of a rank whose parameters got no gradient.
  absl::Status Explained(const absl::Status& error) const { return note_.Explain(error); }

  bool in_backward() const { return in_backward_; }
  StepRecorder& recorder() { return recorder_; }

 private:
  class Hook;

  void BuildBuckets();
  void LookForCapture();
  bool FindsUnused() const { return options_.find_unused_parameters && !options_.static_graph; }
  bool LooksForUnused() const { return options_.find_unused_parameters || options_.static_graph; }
  bool LearnsGraph() const { return graph_ && !graph_->known(); }

  void OnGradient(int parameter, const at::Tensor& arriving);
  void BeginBackward();
  bool AveragedByAnother(int parameter) const;
  void CheckOwn(const std::vector<int>& parameters) const;
  void CountPass();
  std::string TurnInWords() const;
  void DeliverFinished();
  void Take(int parameter, const at::Tensor& arriving);
  void TakeUnused();
  void StartFull(const at::Tensor& arriving);
  void StartDelayed(const at::Tensor& arriving);
  void Start(int bucket, const at::Tensor& arriving);
  void FinishBackward();
  void FinishLearning();
  void CompleteBackward();
  absl::StatusOr<std::vector<at::Tensor>> WaitForResults();
  absl::Status WaitAndDeliver();
  void Deliver(int bucket, const at::Tensor& result);
  void AbandonBackward();
  void EndBackward(bool complete);
  void EndLocalBackward();

  const std::vector<ReducedParameter> parameters_;
  comm::ProcessGroup* const group_;
  const ReducerOptions options_;
  StepRecorder recorder_;
  BucketPlan plan_;
  UsedParameters used_;
  std::optional<LearnedGraph> graph_;  // of Options::static_graph
  GradientBuckets buckets_;
  const std::unique_ptr<PartialGradients> partial_;  // null without virtual ranks
  std::vector<at::Tensor> first_gradients_;          // when the step began, of each parameter
  Reductions reductions_;
  NonFiniteCheck non_finite_;
  OwnGraph own_graph_;
  BackwardPass pass_;
  PartingNote note_;
  BucketCallback on_bucket_;
  std::function<void()> on_end_;
  bool sync_ = true, outside_no_sync_ = true;
  int virtual_rank_ = 0;  // whose turn it is
  int64_t step_ = 0;
  int passes_ = 0;  // of the virtual rank, outside of NoSync
  bool captured_ = false;
  bool in_backward_ = false;  // through its graph, averaged or not
  AccumulatorHooks hooks_;    // last: they go first
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REDUCER_H_
