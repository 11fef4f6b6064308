// Deprecated: include lockstep/checkpoint/optim/lr_scheduler.h, and depend on //checkpoint/optim:lr_scheduler.
// This header will be removed after the next release.

#ifndef LOCKSTEP_CHECKPOINT_LR_SCHEDULER_H_
#define LOCKSTEP_CHECKPOINT_LR_SCHEDULER_H_

#include "lockstep/checkpoint/optim/lr_scheduler.h"  // IWYU pragma: export

#endif  // LOCKSTEP_CHECKPOINT_LR_SCHEDULER_H_
