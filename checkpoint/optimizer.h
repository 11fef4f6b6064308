// Deprecated: include lockstep/checkpoint/optim/optimizer.h, and depend on //checkpoint/optim:optimizer.
// This header will be removed after the next release.

#ifndef LOCKSTEP_CHECKPOINT_OPTIMIZER_H_
#define LOCKSTEP_CHECKPOINT_OPTIMIZER_H_

#include "lockstep/checkpoint/optim/optimizer.h"  // IWYU pragma: export

#endif  // LOCKSTEP_CHECKPOINT_OPTIMIZER_H_
