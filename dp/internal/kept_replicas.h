#ifndef LOCKSTEP_DP_INTERNAL_KEPT_REPLICAS_H_
#define LOCKSTEP_DP_INTERNAL_KEPT_REPLICAS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/dp/internal/chunk.h"

namespace lockstep::dp::internal {

using ModulePtr = std::shared_ptr<torch::nn::Module>;

// A module's submodules, starting with itself, and its tensors. Its replicas have the same order.
struct ModuleTree {
  explicit ModuleTree(const ModulePtr& module);

  std::vector<ModulePtr> modules;
  std::vector<at::Tensor> parameters, buffers;
};

struct ReplicaOptions {
  bool share_memory;
  int64_t chunk_bytes;
  std::function<ModulePtr()> make;  // a module like the one to replicate; not set: clone()
};

// Replicas of a module, made once. Passes the values of parameters and buffers to them, and gradients back.
class KeptReplicas {
 public:
  // One replica for each of `devices`. Passes on exceptions of clone(). Throws c10::ValueError if a replica has other
  // modules, parameters or buffers, or the same tensors. The default generator's state does not change.
  KeptReplicas(ModulePtr module, std::vector<c10::Device> devices, ReplicaOptions options);

  // Returns the first `count` replicas, with the module's current values, training mode and structure. They are created
  // anew if its submodules or tensors have been replaced. Throws c10::ValueError if `count` is too large.
  const std::vector<ModulePtr>& Update(size_t count);

  // Throws StatusError, naming the parameter, if a parameter that replicas share was changed in place since Update.
  void CheckSharedUnwritten() const;

 private:
  // A tensor of the module as it was when the replicas were made.
  struct Known {
    explicit Known(const at::Tensor& tensor);
    bool Is(const at::Tensor& now) const;

    at::Tensor tensor;
    const void* data;
    c10::ScalarType dtype;
    std::vector<int64_t> sizes, strides;
  };

  bool IsKnown(const ModuleTree& tree) const;
  void Make(const ModuleTree& tree);
  void MakeChunks(ChunkKind kind, const std::vector<at::Tensor>& sources,
                  const std::vector<std::vector<at::Tensor>>& copies);
  bool IsFrozenUnderAGraph(const std::vector<const void*>& targets) const;
  void AttachIfNew(std::vector<const void*> targets);
  void SetModes(const ModuleTree& tree, size_t count);
  bool IsShared(const at::Tensor& parameter) const;
  void RecordSharedVersions(const std::vector<at::Tensor>& parameters, size_t count);

  const ModulePtr module_;
  const std::vector<c10::Device> devices_;
  const ReplicaOptions options_;
  std::vector<ModulePtr> replicas_;
  std::vector<std::vector<ModulePtr>> replica_modules_;  // each replica's, as ModuleTree::modules
  std::vector<Chunk> chunks_;
  std::vector<ModulePtr> known_modules_;
  std::vector<Known> known_tensors_;
  std::vector<std::pair<at::Tensor, uint32_t>>
      shared_versions_;                        // of the parameters that several replicas use, at the last Update
  std::vector<const void*> gradient_targets_;  // the receiver of each tensor's gradient; null: it requires no gradient
};

}  // namespace lockstep::dp::internal

#endif  // LOCKSTEP_DP_INTERNAL_KEPT_REPLICAS_H_
