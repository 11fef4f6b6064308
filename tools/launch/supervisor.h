// Deprecated: include lockstep/launch/supervisor.h, and depend on //launch:supervisor.
// This header will be removed after the next release.

#ifndef LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
#define LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_

#include "lockstep/launch/supervisor.h"  // IWYU pragma: export

#endif  // LOCKSTEP_TOOLS_LAUNCH_SUPERVISOR_H_
