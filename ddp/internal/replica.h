#ifndef LOCKSTEP_DDP_INTERNAL_REPLICA_H_
#define LOCKSTEP_DDP_INTERNAL_REPLICA_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/bucket_layout.h"
#include "lockstep/ddp/communication_hook.h"
#include "lockstep/ddp/internal/cast_parameters.h"
#include "lockstep/ddp/internal/module_changes.h"
#include "lockstep/ddp/internal/parameter_check.h"
#include "lockstep/ddp/internal/reducer.h"
#include "lockstep/ddp/options.h"
#include "lockstep/ddp/statistics.h"

namespace torch::nn {
class Module;
}

namespace lockstep::ddp::internal {

// The state that all replicas of a Join share.
struct JoinProgress {
  int active = 0;        // the number of ranks that are not finished, which the first replica counts
  absl::Status stopped;  // the reason, once all ranks stop
};

// How a replica's forward passes behave under Join.
struct JoinMode {
  bool announce = false;  // tell the others that this rank is not finished: the first replica of a Join does
  std::shared_ptr<JoinProgress> progress;
  bool divide_by_initial_world_size = true;
  bool stop_together = false;
};

// This rank's copy of the model: all of DistributedDataParallel that does not depend on the module's type.
class Replica {
 public:
  ~Replica();
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const torch::nn::Module& module, comm::ProcessGroup* group,
                                                         const Options& options);

  // The work before and after each forward of `module`. They throw StatusError.
  void BeforeForward(const torch::nn::Module& module);
  void AfterForward();

  // Return whether forward's arguments and results differ from the module's: on another device, or of another dtype.
  bool ChangesInputs() const { return !options_.device_ids.empty() || casts_; }
  bool ChangesOutputs() const { return options_.output_device.has_value(); }
  at::Tensor ChangeInput(const at::Tensor& input) const;
  at::Tensor ChangeOutput(const at::Tensor& output) const;

  // Call it with each tensor that forward returns, before AfterForward().
  void WatchOutput(const at::Tensor& output) const;

  // For NoSync.
  bool sync() const { return sync_; }
  void set_sync(bool sync) { sync_ = sync; }

  // For virtual ranks: see DistributedDataParallel::VirtualRanks(). Without Options::virtual_ranks a rank is its only
  // virtual rank. A step is BeginVirtualStep(), and for each of virtual_ranks() BeginVirtualRank() and EndVirtualRank()
  // with its place among them. They throw StatusError.
  int virtual_begin() const { return reducer_->virtual_begin(); }
  int virtual_end() const { return reducer_->virtual_end(); }
  void BeginVirtualStep(int64_t step, const std::optional<std::vector<int>>& with_inputs);
  const std::vector<int>& virtual_ranks() const { return virtual_step_.ranks; }
  void BeginVirtualRank(size_t place);
  void EndVirtualRank(size_t place);

  // At the end of the loop over virtual_ranks(), and where it is left: by an exception if `thrown`. If not, the next
  // step throws FailedPrecondition.
  void LeaveVirtualStep(bool thrown);

  // For Join. ShadowStep() takes part in the exchanges of another rank's forward and backward, on a rank that has no
  // inputs left. SynchronizeAtEnd() gives all ranks the module of a rank that is `last`; at least one must be.
  void SetJoinMode(std::optional<JoinMode> mode);
  void ShadowStep();
  absl::Status SynchronizeAtEnd(bool last);

  absl::Status RegisterHook(CommunicationHook hook);

  // See DistributedDataParallel.
  BucketLayout NextBucketLayout() const;
  absl::Status RestoreBucketLayout(const BucketLayout& layout);

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  Reducer& reducer() const { return *reducer_; }
  comm::ProcessGroup& group() const { return *group_; }
  c10::Device device() const { return trained_.front().tensor.device(); }

  // The parameters that are reduced. The reducer's bucket callback gets indices into them.
  const std::vector<NamedTensor>& trained() const { return trained_; }

  // Returns whether the parameters have another dtype while backward runs.
  bool CastsParameters() const { return casts_.has_value(); }

 private:
  using Buffers = std::vector<at::Tensor>;

  struct VirtualStep {
    int64_t number = 0;
    std::vector<int> ranks;  // this rank's virtual ranks that have inputs
    int current = -1;        // the one whose turn it is
    int forwards = 0;        // in this step
    Buffers first_buffers;   // from which every virtual rank's forward starts
  };

  Replica(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options);
  absl::Status Build(const torch::nn::Module& module);
  void PrepareForward(const torch::nn::Module& module);
  void CastBuffers(c10::ScalarType dtype);
  void ExchangeBeforeForward(bool computes_gradients);
  absl::Status SynchronizeFrom(int rank);
  absl::Status CheckHook(const CommunicationHook& hook) const;
  bool Virtual() const { return options_.virtual_ranks > 0; }
  // Returns whether the backward passes of the next forward are averaged.
  bool Syncs() const { return sync_ && (!Virtual() || virtual_step_.current == virtual_step_.ranks.back()); }
  void CheckInVirtualRank() const;
  void CheckInputs(const std::vector<int>& with_inputs) const;
  void SaveBuffers(Buffers& saved) const;
  void RestoreBuffers(const Buffers& saved);
  void RestoreBuffersOf(int virtual_rank);
  void RestoreBuffersOfRank0();
  void AnnounceNotFinished();
  int HighestRank(int candidate);
  int RankOf(int virtual_rank) const;
  void BroadcastBuffers(int candidate);
  std::vector<at::Tensor> BuffersToOverwrite() const;
  bool BroadcastsBuffers() const { return broadcast_buffers_ && options_.broadcast_buffers && !buffers_.empty(); }

  comm::ProcessGroup* const group_;
  const Options options_;
  std::vector<NamedTensor> named_parameters_;  // a tied weight once, under its first name; without ignored ones
  std::vector<NamedTensor> trained_;
  std::vector<at::Tensor> parameters_;  // all, including ignored ones
  std::vector<at::Tensor> buffers_;
  std::vector<bool> running_statistics_;  // for each buffer: whether it is a norm's running mean or variance
  ModuleChanges changes_;
  std::shared_ptr<Reducer> reducer_;
  std::optional<CastParameters> casts_;
  std::optional<JoinMode> join_;
  VirtualStep virtual_step_;
  absl::Status left_early_;              // the loop over the last step's virtual ranks
  std::map<int, Buffers> kept_buffers_;  // of virtual ranks, at their end: of 0, and under Join of each
  std::optional<int> last_with_inputs_;  // under Join: the highest of the last step
  bool sync_ = true;
  bool broadcast_buffers_ = true;  // false before the first forward after a NoSync
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REPLICA_H_
