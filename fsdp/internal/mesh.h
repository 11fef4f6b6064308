// The ranks as a mesh of two dimensions, by PyTorch's names "replicate" and "shard".

#ifndef LOCKSTEP_FSDP_INTERNAL_MESH_H_
#define LOCKSTEP_FSDP_INTERNAL_MESH_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/options.h"

namespace lockstep::fsdp::internal {

// The ranks of a shard group have all shards together: all ranks, or all of a host. The ranks at one place of each
// shard group own the same shards, and are a replicate group.
class Mesh {
 public:
  // `group` is borrowed. Every rank of it must call it. InvalidArgument, on all ranks: the hosts have different numbers
  // of ranks. Other errors come from ProcessGroup::NewGroup().
  static absl::StatusOr<std::unique_ptr<const Mesh>> Create(comm::ProcessGroup* group, ShardingStrategy strategy);

  // All ranks: gradients are summed over them.
  comm::ProcessGroup* group() const { return group_; }
  // This rank's shard group. A rank's number in it is its place.
  comm::ProcessGroup* shard_group() const { return own_shard_group_ ? own_shard_group_.get() : group_; }
  // This rank's replicate group. A rank's number in it is its replica. Null if there is one replica.
  comm::ProcessGroup* replicate_group() const { return replicate_group_.get(); }

  int place() const { return shard_group()->rank(); }
  int replica() const { return replicate_group_ ? replicate_group_->rank() : 0; }
  int replicas() const { return static_cast<int>(at_place_[0].size()); }

  // Returns the number in group() of a rank of a place's replicate group, and of a rank of this shard group.
  int RankOf(int replica, int place) const;
  int RankAt(int place) const;

  // Fails all groups with `cause`.
  void Abort(const absl::Status& cause) const;
  // Returns `status`. If it is an error, and there are several groups, fails all of them with it: a rank that waits for
  // this one in another group would not learn of it.
  absl::Status Spread(const absl::Status& status) const;

 private:
  explicit Mesh(comm::ProcessGroup* group) : group_(group) {}

  comm::ProcessGroup* const group_;
  std::vector<int> own_;                    // the ranks of this shard group
  std::vector<std::vector<int>> at_place_;  // the ranks of each place's replicate group
  // Null if there is one replica.
  std::unique_ptr<comm::ProcessGroup> own_shard_group_, replicate_group_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_MESH_H_
