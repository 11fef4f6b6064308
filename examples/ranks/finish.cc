#include "lockstep/examples/ranks/finish.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {

absl::Status FinishRank(comm::ProcessGroup* group, const absl::Status& status) {
  if (status.ok()) return status;
  if (!absl::IsCancelled(status)) group->Abort(status);
  return OfRank(status, group->rank());
}

absl::Status OfRank(const absl::Status& status, int rank) {
  const std::string name = absl::StrCat("rank ", rank);
  for (const char* const end : {":", " "}) {
    if (absl::StartsWith(status.message(), absl::StrCat(name, end))) return status;
  }
  return Annotate(status, name);
}

}  // namespace lockstep::examples
