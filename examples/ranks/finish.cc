#include "lockstep/examples/ranks/finish.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {

absl::Status FinishRank(comm::ProcessGroup* group, const absl::Status& status) {
  if (status.ok()) return status;
  if (!absl::IsCancelled(status)) group->Abort(status);
  const std::string name = absl::StrCat("rank ", group->rank());
  // Errors of the group's calls name it themselves.
  return absl::StartsWith(status.message(), name + ": ") ? status : Annotate(status, name);
}

}  // namespace lockstep::examples
