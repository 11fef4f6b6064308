#ifndef LOCKSTEP_DDP_INTERNAL_GATHER_TEXTS_H_
#define LOCKSTEP_DDP_INTERNAL_GATHER_TEXTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// Every rank's text, in the order of the ranks. Through the group's store, so that nothing comes between the
// collectives: all ranks must call it, and be Lockstep's. Blocks until they have: DeadlineExceeded after the group's
// timeout, and the group's failure as soon as there is one. `purpose` is a part of the keys; errors begin with `doing`.
absl::StatusOr<std::vector<std::string>> GatherTexts(comm::ProcessGroup& group, absl::string_view purpose,
                                                     const std::string& mine, absl::string_view doing);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_GATHER_TEXTS_H_
