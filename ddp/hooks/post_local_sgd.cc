#include "lockstep/ddp/hooks/post_local_sgd.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/ddp/hooks/default_hooks.h"
#include "lockstep/ddp/internal/known_hook.h"

namespace lockstep::ddp::hooks {

absl::StatusOr<CommunicationHook> PostLocalSgd(comm::ProcessGroup* group, comm::ProcessGroup* subgroup,
                                               const PostLocalSgdOptions& options) {
  if (options.start_local_sgd_iter < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("PostLocalSgd: start_local_sgd_iter is ", options.start_local_sgd_iter, ", expected 0 or more"));
  }
  if (options.post_local_gradient_allreduce && !subgroup) {
    return absl::InvalidArgumentError(
        "PostLocalSgd: subgroup is null, but post_local_gradient_allreduce needs the subgroup of this rank");
  }
  CommunicationHook local = options.post_local_gradient_allreduce ? AllReduce(subgroup) : Noop();
  const auto call = [global = AllReduce(group), local = std::move(local), start = options.start_local_sgd_iter,
                     iteration = std::make_shared<int64_t>(0)](GradBucket& bucket) {
    const bool all = *iteration < start;
    if (bucket.is_last) ++*iteration;
    return all ? global(bucket) : local(bucket);
  };
  return ddp::internal::KnownHook{"PostLocalSgd", std::nullopt, call};
}

}  // namespace lockstep::ddp::hooks
