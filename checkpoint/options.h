// How checkpoints are saved and loaded.

#ifndef LOCKSTEP_CHECKPOINT_OPTIONS_H_
#define LOCKSTEP_CHECKPOINT_OPTIONS_H_

#include <cstddef>

#include "lockstep/checkpoint/map_location.h"

namespace lockstep::checkpoint {

struct SaveOptions {
  // Flush the file and its directory to the disk before returning. Without it a crash of the machine, not of the
  // program, may lose the file, and where the file system reorders writes the previous one too.
  bool sync = true;
};

struct LoadOptions {
  MapLocation map_location = {};
  // Check every record's CRC-32, also of what is not needed. A file that Python wrote with CRCs off carries none and is
  // refused.
  bool verify = true;
  // Bytes that loading may take beyond the file's size; guards against a crafted file that unfolds without end.
  size_t memory_limit = size_t{64} << 20;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIONS_H_
