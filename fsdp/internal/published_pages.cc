#include "lockstep/fsdp/internal/published_pages.h"

#include <c10/core/GradMode.h>

#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/fsdp/internal/shared_pages.h"

namespace lockstep::fsdp::internal {

absl::StatusOr<std::unique_ptr<ParameterMemory>> PublishedPages::Create(comm::ProcessGroup* group,
                                                                        const std::vector<ShardedUnit>& units,
                                                                        const KeptShards& kept) {
  std::unique_ptr<PublishedPages> published(new PublishedPages(group, SharedPages::BufferBytes(units)));
  LOCKSTEP_ASSIGN_OR_RETURN(published->pages_, SharedPages::Create(group, units, /*with_values=*/false));
  published->shards_ = ByPlace(kept);
  for (size_t u = 0; u < units.size(); ++u) {
    std::vector<std::string>& names = published->names_.emplace_back();
    for (const NamedTensor& parameter : units[u].parameters) names.push_back(parameter.name);
    for (const Piece& piece : units[u].layout.pieces) {
      if (piece.rank != group->rank() || piece.is_second) continue;
      published->own_.push_back({published->Shard(u, piece), published->pages_->Shard(u, piece)});
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(published->AfterStep());
  return std::unique_ptr<ParameterMemory>(std::move(published));
}

at::Tensor PublishedPages::Shard(size_t unit, const Piece& piece) const {
  return shards_.at({names_[unit][piece.parameter], piece.begin});
}

ParameterMemory::Bytes PublishedPages::bytes() const {
  Bytes bytes = {0, pages_->bytes().pages, buffers().allocated_bytes()};
  for (const auto& [place, shard] : shards_) bytes.shards += static_cast<int64_t>(shard.nbytes());
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
