#ifndef LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_
#define LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_

#include <memory>

#include "lockstep/comm/internal/group_state.h"

namespace lockstep::comm::internal {

// From now on an exception that nobody catches is told to the other ranks of `group`, before it ends the process.
// Installs a terminate handler, which calls the one that was there before; groups that no longer exist are forgotten.
void ReportUncaughtExceptions(const std::shared_ptr<GroupState>& group);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_
