// Deprecated: include lockstep/launch/report/report.h, and depend on //launch/report.
// This header will be removed after the next release.

#ifndef LOCKSTEP_TOOLS_LAUNCH_REPORT_H_
#define LOCKSTEP_TOOLS_LAUNCH_REPORT_H_

#include "lockstep/launch/report/report.h"  // IWYU pragma: export

#endif  // LOCKSTEP_TOOLS_LAUNCH_REPORT_H_
