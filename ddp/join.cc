#include "lockstep/ddp/join.h"

#include <ATen/ops/full.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/group_access.h"

namespace lockstep::ddp {
namespace {

at::Tensor Number(const internal::Replica& replica, float value) {
  return at::full({1}, value, at::device(replica.device()));
}

}  // namespace

Join::Join(std::initializer_list<Joinable> modules, const JoinOptions& options)
    : options_(options), progress_(std::make_shared<internal::JoinProgress>()) {
  if (!options.enable) return;
  internal::JoinMode mode;
  mode.divide_by_initial_world_size = options.divide_by_initial_world_size;
  mode.stop_together = options.throw_on_early_termination;
  mode.progress = progress_;
  for (const Joinable& module : modules) {
    mode.announce = replicas_.empty();
    replicas_.push_back(module.replica_);
    module.replica_->SetJoinMode(mode);
    comm::internal::GroupAccess::SetUneven(module.replica_->group(), true);
  }
}

Join::~Join() { End(); }

void Join::End() {
  for (internal::Replica* replica : replicas_) {
    replica->SetJoinMode(std::nullopt);
    comm::internal::GroupAccess::SetUneven(replica->group(), false);
  }
  replicas_.clear();
}

absl::Status Join::Finish() {
  if (replicas_.empty()) return absl::OkStatus();
  if (!progress_->stopped.ok()) {
    End();
    return progress_->stopped;
  }
  absl::Status kept;
  const absl::Status spoken =
      TorchStatus(absl::StrCat("rank ", replicas_.front()->group().rank(), ": Join"), [&] { kept = KeepCompany(); });
  End();
  return spoken.ok() ? kept : spoken;
}

absl::Status Join::KeepCompany() {
  comm::ProcessGroup& group = replicas_.front()->group();
  bool was_last = true;
  while (true) {
    const at::Tensor active = Number(*replicas_.front(), 0);
    LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(active));
    if (active.item<float>() == 0) break;
    if (options_.throw_on_early_termination) {
      const bool named = comm::internal::GroupAccess::OnlyLockstepRanks(group);
      const at::Tensor finished =
          Number(*replicas_.front(), named ? static_cast<float>(replicas_.front()->virtual_end()) : 1.0f);
      LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(finished, named ? comm::ReduceOp::kMax : comm::ReduceOp::kSum));
      return absl::OutOfRangeError(absl::StrCat("rank ", group.rank(), " has no inputs left; other ranks have"));
    }
    progress_->active = static_cast<int>(active.item<float>());
    for (internal::Replica* replica : replicas_) replica->ShadowStep();
    was_last = false;
  }
  for (internal::Replica* replica : replicas_) LOCKSTEP_RETURN_IF_ERROR(replica->SynchronizeAtEnd(was_last));
  return absl::OkStatus();
}

}  // namespace lockstep::ddp
