// All of FullyShardedDataParallel that does not depend on the module's type.

#ifndef LOCKSTEP_FSDP_INTERNAL_SHARDED_MODULE_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARDED_MODULE_H_

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/internal/module_changes.h"
#include "lockstep/fsdp/internal/buffers.h"
#include "lockstep/fsdp/internal/kept_shards.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/own_shards.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/shard_reducer.h"
#include "lockstep/fsdp/internal/unit_plan.h"
#include "lockstep/fsdp/internal/virtual_step.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::internal {

// With `kept`, which is borrowed, this rank's shards are the kept ones that are on this rank. The owner of `kept` steps
// them, and Step() is refused. Frozen parameters stay where they are.
class ShardedModule {
 public:
  static absl::StatusOr<std::unique_ptr<ShardedModule>> Create(const torch::nn::Module& module,
                                                               comm::ProcessGroup* group, const Options& options,
                                                               KeptShards* kept = nullptr);
  ~ShardedModule();

  // A forward of `module`, the one of Create(), runs while it exists. The constructor throws StatusError: the group has
  // failed, or a parameter or the step is not as it must be.
  class Forward {
   public:
    Forward(ShardedModule* sharded, const torch::nn::Module& module) : memory_(sharded->memory_.get()) {
      sharded->CheckBeforeForward(module);
      memory_->BeginForward();
    }
    ~Forward() { memory_->EndForward(); }
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

   private:
    ParameterMemory* const memory_;
  };

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<at::Tensor>& shards() const { return shards_.tensors(); }
  const std::vector<std::string>& shard_names() const { return shards_.names(); }
  comm::ProcessGroup* group() const { return group_; }
  const Mesh& mesh() const { return *mesh_; }
  bool kept() const { return kept_ != nullptr; }
  // The units with the places of all ranks' pieces, as memory() numbers them: the trained ones, of which shards() are
  // this rank's pieces in order, and then the frozen ones.
  std::vector<const ShardedUnit*> units() const;
  ParameterMemory& memory() const { return *memory_; }
  ShardReducer::GradientBytes gradient_bytes() const { return reducer_->gradient_bytes(); }

  // False: backward only accumulates gradients in the module's parameters.
  void set_sync(bool sync) { reducer_->set_sync(sync); }
  bool sync() const { return reducer_->sync(); }

  // See FullyShardedDataParallel.
  absl::Status PrepareGradients();
  absl::Status Step(torch::optim::Optimizer& optimizer);
  absl::Status Step(const std::function<void()>& step);

  absl::StatusOr<double> ClipGradNorm(double max_norm, double norm_type);

  // An argument of forward.
  at::Tensor Input(const at::Tensor& tensor) const;

  // After shards were written to outside of a step, on every rank.
  absl::Status Publish() const { return memory_->AfterStep(); }

  absl::Status BeginFull(bool write);
  void EndFull();

  VirtualStep& virtual_step() { return *virtual_step_; }

 private:
  ShardedModule(const torch::nn::Module& module, comm::ProcessGroup* group, const Options& options, KeptShards* kept)
      : group_(group), options_(options), kept_(kept), changes_(module, "fsdp::Wrap") {}
  absl::Status Build(const torch::nn::Module& module);
  void RestoreDtypes() const;
  absl::Status CopyToReplicas(const std::vector<ShardedUnit>& units) const;
  absl::Status MakeMasters(ShardedUnit& unit) const;
  absl::Status ChangeDtypes(std::vector<ShardedUnit>& units, const std::vector<ShardedUnit>& frozen) const;
  absl::StatusOr<std::unique_ptr<ParameterMemory>> MakeMemory(const std::vector<ShardedUnit>& units) const;
  void CheckBeforeForward(const torch::nn::Module& module);
  void AddShards(const std::vector<ShardedUnit>& units);
  // Releases the gradients. After a step that has succeeded, waits until all ranks have stepped.
  absl::Status EndStep(const absl::Status& stepped);
  absl::StatusOr<double> Clip(double max_norm, double norm_type);
  std::string Who() const;

  comm::ProcessGroup* const group_;
  const Options options_;
  KeptShards* const kept_;  // may be null
  ddp::internal::ModuleChanges changes_;
  std::unique_ptr<const Mesh> mesh_;
  std::unique_ptr<ParameterMemory> memory_;
  std::vector<ShardedUnit> frozen_;
  std::vector<at::Tensor> parameters_;
  OwnShards shards_;
  std::optional<Buffers> buffers_;
  std::unique_ptr<ShardReducer> reducer_;
  int prepared_ = 0;  // the number of this step's backward passes whose gradients the shards have
  std::optional<VirtualStep> virtual_step_;
  bool full_ = false;  // between BeginFull() and EndFull()
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARDED_MODULE_H_
