#include "lockstep/elastic/internal/shard.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::elastic::internal {

ParamGroups Shard::Of(const ParamGroups& groups) const {
  size_t number = 0;
  for (const torch::optim::OptimizerParamGroup& group : groups) number += group.params().size();
  if (!keeps.empty() && keeps.size() != number) {
    throw StatusError(absl::FailedPreconditionError(
        absl::StrCat("ShardedOptimizer: it has ", number, " parameters, and had ", keeps.size(),
                     " when World::Run() was called: add parameters before")));
  }
  ParamGroups share;
  size_t next = 0;
  for (const torch::optim::OptimizerParamGroup& group : groups) {
    std::vector<at::Tensor> own;
    for (const at::Tensor& parameter : group.params()) {
      if (keeps.empty() || keeps[next]) own.push_back(parameter);
      ++next;
    }
    share.emplace_back(std::move(own));
    if (group.has_options()) share.back().set_options(group.options().clone());
  }
  return share;
}

}  // namespace lockstep::elastic::internal
