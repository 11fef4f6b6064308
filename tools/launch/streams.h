// Deprecated: include lockstep/launch/supervisor.h, which includes it, and depend on //launch:supervisor.
// This header will be removed after the next release.

#ifndef LOCKSTEP_TOOLS_LAUNCH_STREAMS_H_
#define LOCKSTEP_TOOLS_LAUNCH_STREAMS_H_

#include "lockstep/launch/job/streams.h"  // IWYU pragma: export

#endif  // LOCKSTEP_TOOLS_LAUNCH_STREAMS_H_
