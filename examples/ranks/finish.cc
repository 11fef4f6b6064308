#include "lockstep/examples/ranks/finish.h"

#include "lockstep/examples/program/flag_error.h"

namespace lockstep::examples {

absl::Status FinishRank(comm::ProcessGroup* group, const absl::Status& status) {
  if (status.ok()) return status;
  if (!absl::IsCancelled(status)) group->Abort(status);
  return OfRank(status, group->rank());
}

}  // namespace lockstep::examples
