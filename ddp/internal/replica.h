#ifndef LOCKSTEP_DDP_INTERNAL_REPLICA_H_
#define LOCKSTEP_DDP_INTERNAL_REPLICA_H_

#include <ATen/core/Tensor.h>

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
#include "lockstep/ddp/internal/parameter_check.h"
#include "lockstep/ddp/internal/reducer.h"
#include "lockstep/ddp/options.h"
#include "lockstep/ddp/statistics.h"

namespace torch::nn {
class Module;
}

namespace lockstep::ddp::internal {

// What all replicas of a Join share.
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

  // The work before and after each forward. They throw StatusError.
  void BeforeForward();
  void AfterForward();

  // Whether forward's arguments and results differ from the module's: on another device, of another dtype, or behind a
  // node that notices backward.
  bool ChangesInputs() const { return !options_.device_ids.empty() || casts_; }
  bool ChangesOutputs() const { return options_.output_device || reducer_->NeedsSink(); }
  at::Tensor ChangeInput(const at::Tensor& input) const;
  std::vector<at::Tensor> ChangeOutputs(std::vector<at::Tensor> outputs) const;

  // For NoSync.
  bool sync() const { return sync_; }
  void set_sync(bool sync) { sync_ = sync; }

  // For virtual ranks: see DistributedDataParallel::VirtualRanks(). They throw StatusError.
  int virtual_begin() const { return reducer_->virtual_begin(); }
  int virtual_end() const { return reducer_->virtual_end(); }
  void BeginVirtualStep(int64_t step);
  void BeginVirtualRank(int virtual_rank);
  void EndVirtualRank();

  // For Join. ShadowStep() takes part in the exchanges of another rank's forward and backward, on a rank that has no
  // inputs left.
  void SetJoinMode(std::optional<JoinMode> mode) { join_ = std::move(mode); }
  void ShadowStep();
  absl::Status SynchronizeFrom(int rank);

  // The highest rank that is a candidate. All ranks must call it, and at least one must be a candidate.
  int AnyRank(bool candidate);

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

  // Whether the parameters have another dtype while backward runs.
  bool CastsParameters() const { return casts_.has_value(); }

 private:
  struct VirtualStep {
    int64_t number = 0;
    int current = -1;                       // the virtual rank whose turn it is
    int forwards = 0;                       // in this step
    std::vector<at::Tensor> first_buffers;  // from which every virtual rank's forward starts
    std::vector<at::Tensor> kept_buffers;   // virtual rank 0's, at its end
  };

  Replica(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options);
  absl::Status Build(const torch::nn::Module& module);
  void PrepareForward();
  void CastBuffers(c10::ScalarType dtype);
  void ExchangeBeforeForward(bool computes_gradients);
  // Whether the backward passes of the next forward are averaged.
  bool Syncs() const { return sync_ && (options_.virtual_ranks == 0 || virtual_step_.current + 1 == virtual_end()); }
  void CheckInVirtualRank() const;
  void SaveBuffers(std::vector<at::Tensor>& saved) const;
  void RestoreBuffers(const std::vector<at::Tensor>& saved);
  void AnnounceNotFinished();
  void BroadcastBuffers();
  bool BroadcastsBuffers() const { return broadcast_buffers_ && options_.broadcast_buffers && !buffers_.empty(); }

  comm::ProcessGroup* const group_;
  const Options options_;
  std::vector<NamedTensor> named_parameters_;  // a tied weight once, under its first name; without ignored ones
  std::vector<NamedTensor> trained_;
  std::vector<at::Tensor> parameters_;  // all, including ignored ones
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<Reducer> reducer_;
  std::optional<CastParameters> casts_;
  std::optional<JoinMode> join_;
  VirtualStep virtual_step_;
  bool sync_ = true;
  bool broadcast_buffers_ = true;  // false before the first forward after a NoSync
};

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_REPLICA_H_
