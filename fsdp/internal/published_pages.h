// Shared pages into which ranks copy the values of the shards that they keep in private memory.

#ifndef LOCKSTEP_FSDP_INTERNAL_PUBLISHED_PAGES_H_
#define LOCKSTEP_FSDP_INTERNAL_PUBLISHED_PAGES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/fsdp/internal/mesh.h"
#include "lockstep/fsdp/internal/parameter_memory.h"
#include "lockstep/fsdp/internal/sharded_unit.h"

namespace lockstep::fsdp::internal {

// The pages are a copy: a rank that dies while it writes to them, whatever it writes, damages nothing that counts. The
// next group has new pages, which the owners of that group fill.
class PublishedPages final : public ParameterMemory {
 public:
  // Moves the units' parameters to the common memory, and publishes their kept shards. `mesh` is borrowed. Every rank
  // must call it. FailedPrecondition: the backend shares no memory.
  static absl::StatusOr<std::unique_ptr<ParameterMemory>> Create(const Mesh& mesh,
                                                                 const std::vector<ShardedUnit>& units);

  // The kept shard's own tensor.
  at::Tensor Shard(size_t unit, const Piece& piece) const override { return units_[unit].Kept(piece); }
  Bytes bytes() const override;
  size_t reductions() const override { return pages_->reductions(); }
  absl::Status BeginFull(bool /*write*/) override { return absl::OkStatus(); }
  absl::Status EndFull() override { return absl::OkStatus(); }

  // Publishes the shards that this rank owns.
  absl::Status AfterStep() override;

 private:
  PublishedPages(const Mesh& mesh, int64_t buffer_bytes, std::vector<ShardedUnit> units)
      : ParameterMemory(mesh.group(), buffer_bytes), group_(mesh.shard_group()), units_(std::move(units)) {}

  struct Published {
    at::Tensor shard, page;
  };

  comm::ProcessGroup* const group_;  // that has the pages in common
  const std::vector<ShardedUnit> units_;
  std::unique_ptr<ParameterMemory> pages_;
  std::vector<Published> own_;
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_PUBLISHED_PAGES_H_
