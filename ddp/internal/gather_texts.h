#ifndef LOCKSTEP_DDP_INTERNAL_GATHER_TEXTS_H_
#define LOCKSTEP_DDP_INTERNAL_GATHER_TEXTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::ddp::internal {

// Every rank's text, in the order of the ranks. It goes through the group's store and adds no collectives. All ranks
// must be Lockstep ranks and must call it. Blocks until they have. DeadlineExceeded: the group's timeout passed. If the
// group fails, returns its failure at once. `purpose` is a part of the keys; errors begin with `doing`. A rank sends
// one request, and another one for each 128 ranks. It receives all texts, so they should be short in a large group.
absl::StatusOr<std::vector<std::string>> GatherTexts(comm::ProcessGroup& group, absl::string_view purpose,
                                                     const std::string& mine, absl::string_view doing);

}  // namespace lockstep::ddp::internal

#endif  // LOCKSTEP_DDP_INTERNAL_GATHER_TEXTS_H_
