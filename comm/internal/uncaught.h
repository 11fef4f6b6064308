#ifndef LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_
#define LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_

#include <memory>

#include "lockstep/comm/internal/group_state.h"

namespace lockstep::comm::internal {

// From now on, if an uncaught exception ends the process, it first reports it to the other ranks of `group`. Installs a
// terminate handler, which then calls the previous one. Groups that no longer exist are ignored.
void ReportUncaughtExceptions(const std::shared_ptr<GroupState>& group);

// Decides whether an uncaught exception belongs to a thread that can end alone. If so, it tells the waiters of the
// thread and returns true. Called on that thread, during the exception.
using EndThreadAlone = bool (*)();

// From now on the terminate handler calls `decide` first. If it returns true, the thread stops forever at this point,
// with all locks that it holds, and the process continues. There is one function for the process; a second call
// replaces it.
void SpareProcess(EndThreadAlone decide);

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_UNCAUGHT_H_
