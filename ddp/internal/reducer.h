#ifndef LOCKSTEP_DDP_INTERNAL_REDUCER_H_
#define LOCKSTEP_DDP_INTERNAL_REDUCER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/birthplace.h"
#include "lockstep/ddp/internal/slot.h"
#include "lockstep/ddp/internal/step_recorder.h"
#include "lockstep/ddp/internal/used_parameters.h"
#include "lockstep/ddp/options.h"

namespace torch::autograd {
struct Node;
}

namespace lockstep::ddp::internal {

// A parameter to be reduced.
struct ReducedParameter {
  std::string name;
  at::Tensor tensor;
  bool sparse = false;   // its gradients are sparse
  bool delayed = false;  // it is reduced with the other delayed ones, after `delay_until`
};

struct ReducerOptions {
  // In bytes: the limits of the first, second, ... bucket of the first layout and of the one that replaces it.
  std::vector<int64_t> first_limits;
  std::vector<int64_t> limits;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool skip_all_reduce_unused_params = false;
  bool gradient_as_bucket_view = false;
  absl::optional<c10::ScalarType> reduce_dtype;  // not set: that of the parameters
  int delay_until = -1;                          // the parameter whose gradient starts the delayed ones' all_reduce
  NonFinite non_finite = NonFinite::kIgnore;
};

// Averages gradients over the ranks while backward is still computing others.
//
// A hook on each parameter's gradient accumulator copies the gradient into its slot in a bucket, divided by the number
// of ranks unless the all_reduce is to divide. When a bucket is full and those before it have started, its all_reduce
// starts; at the end of backward the results are waited for. A gradient that nobody else refers to is then not copied
// back: the slot becomes the gradient, and whoever still holds it when the slot is needed again gets the numbers in
// memory of its own (see Slot). Buckets live in memory that the group shares, where it has such.
//
// The first backward uses one bucket; the next forward lays buckets out anew in the order in which rank 0's gradients
// became ready, as PyTorch's DistributedDataParallel does (Li et al., PyTorch Distributed, VLDB 2020).
//
// One thread uses it at a time. Errors are thrown as StatusError, since backward is LibTorch's.
class Reducer {
 public:
  // `parameters`: those that require gradients, each once. They and `group` (borrowed) outlive the reducer.
  Reducer(std::vector<ReducedParameter> parameters, comm::ProcessGroup* group, ReducerOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // To be called before every forward that computes gradients; `sync`: the backward passes that follow are averaged.
  // Throws what was wrong with the last backward: FailedPrecondition naming the parameters that got no gradient, or
  // those whose autograd node has been replaced (as by module->to(dtype) after wrapping). Also FailedPrecondition if
  // the step goes into a CUDA graph and cannot.
  void PrepareForward(bool sync);

  // Whether the step at hand goes into a CUDA graph: the host learns nothing of it then.
  bool captured() const { return captured_; }

  // Whether outputs must pass through Sink(), which finds the outermost backward.
  bool NeedsSink() const { return options_.find_unused_parameters || options_.static_graph; }

  // To be called when a backward begins, in its thread, before any gradient of it arrives; the first gradient does it
  // too.
  void BeginBackward();

  // Replaces the all_reduce. Not while in backward.
  void SetHook(CommunicationHook hook);
  bool has_hook() const { return hook_ != nullptr; }

  // Called with the parameters of each bucket, in order, as soon as its gradients are averaged.
  using BucketCallback = std::function<void(const std::vector<int>& parameters)>;
  void SetBucketCallback(BucketCallback callback) { on_bucket_ = std::move(callback); }
  bool has_bucket_callback() const { return on_bucket_ != nullptr; }

  // Called when a backward has ended, averaged or not, and when one is given up.
  void SetEndCallback(std::function<void()> callback) { on_end_ = std::move(callback); }

  // Gradients are divided by this instead of the number of ranks, until the end of the next backward.
  void SetDivisor(int divisor) { divisor_ = divisor; }

  // For a rank that has no inputs left: what the others' next backward exchanges, with gradients of zero, and what
  // their next forward does to the layout.
  void ShadowBackward();
  void RebuildIfDue();

  // The parameters are other tensors' data now (see MixedPrecision), so hooks go to their present accumulators.
  void ReinstallHooks();

  // The parameters of each bucket, in the order in which the buckets are reduced.
  std::vector<std::vector<int>> BucketLayout() const;

  // The same for the next backward, without the bucket of delayed parameters; empty if that backward comes before the
  // order in which gradients become ready is known. On ranks other than 0 the order is their own until the next
  // forward.
  std::vector<std::vector<int>> NextLayout() const;

  // Lays the buckets out so, for good. Not while in backward.
  void RestoreLayout(const std::vector<std::vector<int>>& layout);

  const std::vector<ReducedParameter>& parameters() const { return parameters_; }

  // `status`; if it says that the group failed, with the word that a rank left whose parameters got no gradient.
  absl::Status Explained(const absl::Status& status) const;

  bool in_backward() const { return in_backward_; }
  StepRecorder& recorder() { return recorder_; }
  comm::ProcessGroup& group() { return *group_; }

 private:
  struct Bucket;
  class Hook;

  void InstallHooks();
  void RemoveHooks();
  void CheckHooks() const;
  void LeaveWord();
  std::vector<std::vector<int>> FirstLayout() const;
  std::vector<std::vector<int>> LayoutOfReadyOrder() const;
  void BuildBuckets(const std::vector<std::vector<int>>& layout);
  Bucket MakeBucket(const std::vector<int>& parameters);
  std::vector<std::vector<int>> AgreeOnLayout(const std::vector<std::vector<int>>& mine);
  bool MayRebuild() const { return (options_.static_graph || !options_.find_unused_parameters) && !rebuilt_; }
  bool DynamicUnused() const { return options_.find_unused_parameters && !options_.static_graph; }
  bool FirstOfStaticGraph() const { return options_.static_graph && !graph_known_; }

  void OnGradient(int index, const at::Tensor& arriving);
  void MarkUnused();
  void MarkReady(int index);
  void AllocateSlots(Bucket& bucket);
  std::vector<int> MoveGradientsOut();
  void MoveGradientsIn(const std::vector<int>& parameters);
  void ExpectBirths(const std::vector<int>& parameters);
  bool BornInPlace(int index);
  void MoveToOtherMemory(Bucket& bucket);
  void CopyIntoSlot(int index, bool used);
  void TakeSparse(int index);
  void StartFullBuckets();
  void StartDelayed();
  void Start(Bucket& bucket);
  void Launch(Bucket& bucket);
  void LaunchSparse(Bucket& bucket);
  bool Skipped(const Bucket& bucket) const;
  bool DividedInSum(const Bucket& bucket) const;
  void LookForCapture();
  std::string WhyNotCaptured() const;
  void ReplaceGradients(const Bucket& bucket);
  void DeliverFinished();
  void Deliver(Bucket& bucket, const at::Tensor& result);
  void DeliverParameter(int index);
  void FinishBackward();
  void FinishFirstOfStaticGraph();
  void InventReadyOrder();
  void CompleteBackward();
  absl::StatusOr<at::Tensor> Result(Bucket& bucket);
  absl::Status WaitForBuckets(std::vector<at::Tensor>& results);
  absl::Status WaitAndDeliver();
  void AddNonFinite(const Bucket& bucket, const at::Tensor& content, std::vector<int>& found) const;
  absl::Status CheckFinite(const std::vector<at::Tensor>& results);
  void AbandonBackward();
  void EndBackward(bool complete);
  absl::Status NoGradientError() const;
  double Divisor() const { return divisor_.value_or(group_->size()); }

  // One a parameter.
  struct State {
    int bucket = 0;
    at::ScalarType dtype = at::kFloat;  // of the gradient after backward
    Slot slot;
    std::shared_ptr<Birthplace> birthplace;  // the slot's memory, if a gradient may be born there
    int birth_number = 0;                    // see Births; 0: not known
    int misbirths = 0;                       // how often something else was born there
    bool ready = false;
    int expected = 0;   // of a static graph: how often its hook runs in a backward
    int remaining = 0;  // in this one
  };

  const std::vector<ReducedParameter> parameters_;
  comm::ProcessGroup* const group_;
  const ReducerOptions options_;
  const std::string word_key_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // kept alive: the hooks are theirs
  std::vector<uintptr_t> hooks_;
  bool hooks_move_ = false;  // see ReinstallHooks()
  CommunicationHook hook_;
  BucketCallback on_bucket_;
  std::function<void()> on_end_;
  StepRecorder recorder_;

  std::vector<Bucket> buckets_;  // the one of delayed parameters, if any, last
  size_t ordered_ = 0;           // the buckets before it, which start in order
  std::vector<State> states_;
  std::shared_ptr<Births> births_;  // null: no gradient is born in a bucket
  absl::optional<UsedParameters> used_;
  int layout_ = 0;
  bool backend_sums_sparse_ = true;  // until it has said that it does not
  bool sync_ = true;
  bool captured_ = false;
  bool in_backward_ = false;
  bool end_is_queued_ = false;    // of a backward that is not averaged
  bool graph_known_ = false;      // of a static graph: this rank's first backward is over
  bool used_known_ = false;       // and which parameters any rank uses, exchanged in the first backward of any
  at::Tensor arriving_;           // what the engine holds of the gradient that has just come in
  size_t next_bucket_ = 0;        // the first that has not started
  size_t next_delivery_ = 0;      // the first whose result is not in the gradients
  std::vector<int> ready_order_;  // of the first backward
  std::vector<int> not_finite_;   // parameters whose own gradient is not, in this backward
  bool rebuilt_ = false;
  absl::optional<int> divisor_;
  absl::Status last_backward_;
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REDUCER_H_
