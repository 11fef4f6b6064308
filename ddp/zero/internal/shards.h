#ifndef LOCKSTEP_DDP_ZERO_INTERNAL_SHARDS_H_
#define LOCKSTEP_DDP_ZERO_INTERNAL_SHARDS_H_

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::zero::internal {

using ParamGroups = std::vector<torch::optim::OptimizerParamGroup>;

// The rank that each parameter belongs to, given the parameters' numbers of elements by param group: group after group,
// the largest first (equal ones in their order), each to the rank that has the fewest elements so far, the lowest such
// rank. That is how PyTorch's ZeroRedundancyOptimizer divides them.
std::vector<std::vector<int>> AssignOwners(const std::vector<std::vector<int64_t>>& sizes, int world_size);

// The owner of each parameter: the parts of ZeroRedundancyOptimizer that do not depend on the optimizer's type.
// Movable.
class Shards {
 public:
  // Compares the parameters over the ranks of `group`, which is borrowed, through its store; every rank must call it.
  // With `as_views`, moves the parameters' data into one buffer for each rank, dtype and device. InvalidArgument, on
  // all ranks: they differ, or one is undefined, is not a leaf, occurs twice or, with `as_views`, is not dense.
  static absl::StatusOr<Shards> Create(const ParamGroups& groups, comm::ProcessGroup* group, bool as_views);

  // `groups` with the parameters of `rank` only, and copies of their options. FailedPrecondition, thrown as
  // StatusError: they are not the groups that were passed to Create().
  ParamGroups ShareOf(const ParamGroups& groups, int rank) const;
  ParamGroups OwnShare(const ParamGroups& groups) const { return ShareOf(groups, group_->rank()); }

  // Erases the states of the other ranks' parameters.
  void DropOthers(ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>& states) const;

  // Gives every rank each rank's parameters. Collective.
  absl::Status Broadcast();

  // SendBytes() sends a byte string to another rank, and ReceiveBytes() receives it there.
  absl::Status SendBytes(const std::string& bytes, int to) const;
  absl::StatusOr<std::string> ReceiveBytes(int from) const;

  comm::ProcessGroup& group() const { return *group_; }
  bool as_views() const { return as_views_; }

 private:
  // Parameters of one rank, dtype and device.
  struct Part {
    int owner = 0;
    std::vector<at::Tensor> parameters;
    at::Tensor buffer;  // which contains them; undefined if they have separate memory
  };

  Shards(comm::ProcessGroup* group, std::vector<std::vector<int>> owners, bool as_views)
      : group_(group), owners_(std::move(owners)), as_views_(as_views) {}
  void Add(const at::Tensor& parameter, int owner);
  void MakeViews();

  comm::ProcessGroup* group_;
  std::vector<std::vector<int>> owners_;  // by param group and place in it
  bool as_views_;
  std::vector<Part> parts_;       // by owner
  at::Device device_ = at::kCPU;  // a device for which the group has a backend
};

// The bytes that `save` writes to an archive, and the reverse. Tensors are loaded to the CPU.
std::string ToBytes(const std::function<void(torch::serialize::OutputArchive& archive)>& save);
void FromBytes(const std::string& bytes, const std::function<void(torch::serialize::InputArchive& archive)>& load);

}  // namespace lockstep::ddp::zero::internal

#endif  // LOCKSTEP_DDP_ZERO_INTERNAL_SHARDS_H_
