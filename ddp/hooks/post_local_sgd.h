// Post-local SGD: averages gradients over all ranks first, and later over a few ranks only.

#ifndef LOCKSTEP_DDP_HOOKS_POST_LOCAL_SGD_H_
#define LOCKSTEP_DDP_HOOKS_POST_LOCAL_SGD_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/ddp/communication_hook.h"

namespace lockstep::ddp::hooks {

// Names are the same as in torch.distributed's PostLocalSGDState.
struct PostLocalSgdOptions {
  // The number of first steps that average over all ranks.
  int64_t start_local_sgd_iter = 100;

  // True if later steps average over the sub-group. Otherwise each rank keeps its own gradients.
  bool post_local_gradient_allreduce = true;
};

// Creates a hook that averages gradients over `group` in the first steps, and over `subgroup`, such as the ranks of a
// host, afterwards. From then on the parameters of different sub-groups diverge until a PeriodicModelAverager averages
// them. T. Lin, S. U. Stich, K. K. Patel, M. Jaggi, "Don't Use Large Mini-Batches, Use Local SGD", ICLR 2020,
// https://arxiv.org/abs/1808.07217.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto host, group->NewGroupByHost());
//   LOCKSTEP_ASSIGN_OR_RETURN(auto hook, ddp::hooks::PostLocalSgd(group.get(), host.get(), {/*start=*/100}));
//   LOCKSTEP_ASSIGN_OR_RETURN(auto averager, ddp::hooks::PeriodicModelAverager::Create(
//                                                group.get(), {/*period=*/4, /*warmup_steps=*/100}));
//   ...
//   loss.backward();
//   optimizer.step();
//   LOCKSTEP_RETURN_IF_ERROR(averager.AverageParameters(ddp.parameters()));   // on every rank, after every step
//
// The averager's warm-up must be as long as the hook's. DDP still broadcasts buffers among all ranks. An optimizer's
// state, such as momentum, is not averaged. A checkpoint contains the parameters of the rank that writes it, so save
// after a step that averaged.
//
// Both groups must outlive the hook. Every rank of `group` must create a hook, with the same options and a sub-group to
// which the rank belongs. Creating it sends nothing. InvalidArgument: start_local_sgd_iter is negative, or `subgroup`
// is null and post_local_gradient_allreduce is set.
absl::StatusOr<CommunicationHook> PostLocalSgd(comm::ProcessGroup* group, comm::ProcessGroup* subgroup,
                                               const PostLocalSgdOptions& options);

}  // namespace lockstep::ddp::hooks

#endif  // LOCKSTEP_DDP_HOOKS_POST_LOCAL_SGD_H_
