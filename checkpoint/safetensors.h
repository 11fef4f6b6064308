// Deprecated: include lockstep/checkpoint/safetensors/safetensors.h, and depend on //checkpoint/safetensors.
// This header will be removed after the next release.

#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_H_

#include "lockstep/checkpoint/safetensors/safetensors.h"  // IWYU pragma: export

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_H_
