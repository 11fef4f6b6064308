#ifndef LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_
#define LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_

#include <memory>

#include "lockstep/comm/internal/group_state.h"

namespace lockstep::comm::internal {

// From now on an exception that nobody catches is told to the other ranks of `group`, before it ends the process.
// Installs a terminate handler, which calls the one that was there before; groups that no longer exist are forgotten.
void ReportUncaughtExceptions(const std::shared_ptr<GroupState>& group);

// What decides whether an exception that nobody catches is that of a thread which can end alone: true after it has told
// those who wait for the thread. Called on that thread, within the exception.
using EndThreadAlone = bool (*)();

// From now on the terminate handler asks `decide` first. If it says true the thread stops where it is, for ever,
// holding the locks that it holds, and the process goes on. One function a process; another replaces it.
void SpareProcess(EndThreadAlone decide);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_
