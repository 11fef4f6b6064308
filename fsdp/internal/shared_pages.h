// The parameters of all ranks of a host, once, in memory that these ranks have in common.

#ifndef LOCKSTEP_FSDP_INTERNAL_SHARED_PAGES_H_
#define LOCKSTEP_FSDP_INTERNAL_SHARED_PAGES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/sharded_unit.h"

namespace lockstep::fsdp::internal {

class SharedPages final : public ParameterMemory {
 public:
  // Moves all parameters to the common memory, with rank 0's values. `group` is borrowed. Every rank must call it.
  // FailedPrecondition: the backend shares no memory.
  static absl::StatusOr<std::unique_ptr<ParameterMemory>> Create(comm::ProcessGroup* group,
                                                                 const std::vector<ShardedUnit>& units,
                                                                 const std::vector<NamedTensor>& frozen);

  at::Tensor Shard(size_t unit, const Piece& piece) const override;
  absl::Status AfterStep() override { return group_->Barrier(); }

 private:
  explicit SharedPages(comm::ProcessGroup* group) : group_(group) {}
  void Move(const std::vector<ShardedUnit>& units, const std::vector<NamedTensor>& frozen);
  void MoveParameter(const at::Tensor& parameter, const at::Tensor& flat) const;

  struct Unit {
    at::Tensor memory;             // flat
    std::vector<int64_t> offsets;  // of each parameter
  };

  comm::ProcessGroup* const group_;
  at::Tensor memory_;  // bytes
  std::vector<Unit> units_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARED_PAGES_H_
