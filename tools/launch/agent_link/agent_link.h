// Deprecated: include lockstep/launch/link/agent_link.h, and depend on //launch/link.
// This header will be removed after the next release.

#ifndef LOCKSTEP_TOOLS_LAUNCH_AGENT_LINK_AGENT_LINK_H_
#define LOCKSTEP_TOOLS_LAUNCH_AGENT_LINK_AGENT_LINK_H_

#include "lockstep/launch/link/agent_link.h"  // IWYU pragma: export

#endif  // LOCKSTEP_TOOLS_LAUNCH_AGENT_LINK_AGENT_LINK_H_
