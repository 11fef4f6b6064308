// Deprecated: include lockstep/launch/report/failure.h, and depend on //launch/report:failure.
// This header will be removed after the next release.

#ifndef LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_
#define LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_

#include "lockstep/launch/report/failure.h"  // IWYU pragma: export

#endif  // LOCKSTEP_TOOLS_LAUNCH_FAILURE_H_
