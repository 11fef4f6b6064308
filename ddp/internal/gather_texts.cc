#include "lockstep/ddp/internal/gather_texts.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::ddp::internal {

absl::StatusOr<std::vector<std::string>> GatherTexts(comm::ProcessGroup& group, absl::string_view purpose,
                                                     const std::string& mine, absl::string_view doing) {
  const std::string prefix = group.NextKey(purpose);
  const auto key = [&](int rank) { return absl::StrCat(prefix, "/", rank); };
  return TorchStatusOr(doing, [&] {
    group.store()->set(key(group.rank()), mine);
    std::vector<std::string> texts;
    for (int rank = 0; rank < group.size(); ++rank)
      texts.push_back(rank == group.rank() ? mine : group.store()->get_to_str(key(rank)));
    return texts;
  });
}

}  // namespace lockstep::ddp::internal
