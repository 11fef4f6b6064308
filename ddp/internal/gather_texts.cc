#include "lockstep/ddp/internal/gather_texts.h"

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::ddp::internal {

absl::StatusOr<std::vector<std::string>> GatherTexts(comm::ProcessGroup& group, absl::string_view purpose,
                                                     const std::string& mine, absl::string_view doing) {
  const std::string prefix = comm::internal::GroupAccess::NextKey(group, purpose);
  const auto texts = std::make_shared<std::vector<std::string>>();
  const auto gather = [=, own = group.rank(), size = group.size()](c10d::Store& store) {
    const auto key = [&](int rank) { return absl::StrCat(prefix, "/", rank); };
    store.set(key(own), mine);
    for (int rank = 0; rank < size; ++rank) texts->push_back(rank == own ? mine : store.get_to_str(key(rank)));
    return absl::OkStatus();
  };
  const absl::Status status = group.CallStore(absl::Now() + group.timeout(), gather);
  if (!status.ok()) return Annotate(status, doing);
  return *texts;
}

}  // namespace lockstep::ddp::internal
