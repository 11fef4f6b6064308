// Options for saving and loading checkpoints.

#ifndef LOCKSTEP_CHECKPOINT_OPTIONS_H_
#define LOCKSTEP_CHECKPOINT_OPTIONS_H_

#include <cstddef>

#include "lockstep/checkpoint/map_location.h"

namespace lockstep::checkpoint {

struct SaveOptions {
  // Flushes the file and its directory to the disk before returning. Without it, a crash of the machine (not of the
  // program) may lose the file and, if the file system reorders writes, the previous file too.
  bool sync = true;
};

struct LoadOptions {
  MapLocation map_location = {};
  // Checks the CRC-32 of every record, including records that are not needed. A file that Python wrote with CRCs turned
  // off has none, and is rejected.
  bool verify = true;
  // Bytes that loading may use beyond the file's size and 64 times its pickle (the record data.pkl). Any state dict
  // stays within the default; the state of an optimizer of 100,000 parameters needs more. Protects against a malicious
  // file that expands without limit.
  size_t memory_limit = size_t{64} << 20;
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OPTIONS_H_
