// Deprecated: include lockstep/launch/spawn.h, and depend on //launch:spawn.
// This header will be removed after the next release.

#ifndef LOCKSTEP_TOOLS_LAUNCH_SPAWN_H_
#define LOCKSTEP_TOOLS_LAUNCH_SPAWN_H_

#include "lockstep/launch/spawn.h"  // IWYU pragma: export

#endif  // LOCKSTEP_TOOLS_LAUNCH_SPAWN_H_
