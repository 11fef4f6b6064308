#include "lockstep/fsdp/internal/published_pages.h"

#include <c10/core/GradMode.h>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/internal/shared_pages.h"

namespace lockstep::fsdp::internal {

absl::StatusOr<std::unique_ptr<ParameterMemory>> PublishedPages::Create(const Mesh& mesh,
                                                                        const std::vector<ShardedUnit>& units) {
  std::unique_ptr<PublishedPages> published(new PublishedPages(mesh, SharedPages::BufferBytes(units), units));
  LOCKSTEP_ASSIGN_OR_RETURN(published->pages_, SharedPages::Create(mesh, units, /*with_values=*/false));
  for (size_t u = 0; u < units.size(); ++u) {
    for (const Piece& piece : units[u].layout.pieces) {
      if (piece.rank != mesh.place() || piece.is_second) continue;
      published->own_.push_back({units[u].Kept(piece), published->pages_->Shard(u, piece)});
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(published->AfterStep());
  return std::unique_ptr<ParameterMemory>(std::move(published));
}

ParameterMemory::Bytes PublishedPages::bytes() const {
  Bytes bytes = {0, pages_->bytes().pages, buffers().allocated_bytes()};
  for (const ShardedUnit& unit : units_) {
    for (const auto& [place, shard] : unit.kept) bytes.shards += static_cast<int64_t>(shard.nbytes());
  }
  return bytes;
}

absl::Status PublishedPages::AfterStep() {
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [this] {
    const c10::NoGradGuard no_grad;
    for (const Published& own : own_) own.page.copy_(own.shard);
  }));
  return group_->Barrier();
}

}  // namespace lockstep::fsdp::internal
