// Names files of other kinds that are taken for checkpoints.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_FOREIGN_FORMAT_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_FOREIGN_FORMAT_H_

#include "absl/status/status.h"
#include "lockstep/checkpoint/internal/byte_stream.h"

namespace lockstep::checkpoint::internal {

// By its first bytes: an error that says what the file is (empty, a web page, compressed, a Git LFS pointer, ...) and
// what to do. Ok where it may be a .pt or a safetensors file. DataLoss, or Unimplemented where PyTorch loads it.
absl::Status CheckForeignFormat(const ByteSource& source);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_FOREIGN_FORMAT_H_
