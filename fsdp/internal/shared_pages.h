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
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/sharded_unit.h"

namespace lockstep::fsdp::internal {

class SharedPages final : public ParameterMemory {
 public:
  // Moves all parameters to the common memory, with the values of the shard group's first rank if `with_values`. `mesh`
  // is borrowed. Every rank must call it. FailedPrecondition: the backend shares no memory.
  static absl::StatusOr<std::unique_ptr<ParameterMemory>> Create(const Mesh& mesh,
                                                                 const std::vector<ShardedUnit>& units,
                                                                 bool with_values = true);

  // The bytes of the largest buffer that a reduction of the units needs.
  static int64_t BufferBytes(const std::vector<ShardedUnit>& units);

  at::Tensor Shard(size_t unit, const Piece& piece) const override;
  Bytes bytes() const override { return {0, static_cast<int64_t>(memory_.nbytes()), buffers().allocated_bytes()}; }
  size_t reductions() const override { return 2; }
  void BeginForward() override;
  absl::Status BeginFull(bool write) override;
  absl::Status EndFull() override { return writes_ ? group_->Barrier() : absl::OkStatus(); }
  absl::Status AfterStep() override { return group_->Barrier(); }

 private:
  SharedPages(const Mesh& mesh, int64_t buffer_bytes)
      : ParameterMemory(mesh.group(), buffer_bytes), group_(mesh.shard_group()) {}
  void Move(const std::vector<ShardedUnit>& units, bool with_values);

  struct Unit {
    at::Tensor memory;             // flat
    std::vector<int64_t> offsets;  // of each parameter
    std::vector<NamedTensor> parameters;
  };

  comm::ProcessGroup* const group_;  // that has the memory in common
  at::Tensor memory_;                // bytes
  std::vector<Unit> units_;
  bool writes_ = false;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_SHARED_PAGES_H_
