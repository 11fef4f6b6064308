// Names files of other kinds that are taken for checkpoints.

#ifndef LOCKSTEP_CHECKPOINT_FILE_FOREIGN_FORMAT_H_
#define LOCKSTEP_CHECKPOINT_FILE_FOREIGN_FORMAT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/file/byte_stream.h"

namespace lockstep::checkpoint::file {

// Recognises other formats by a file's first bytes: the error says what the file is (empty, a web page, compressed, a
// Git LFS pointer, ...) and what to do. OK if it may be a .pt or a safetensors file. Unimplemented: PyTorch loads it.
// DataLoss: other formats.
absl::Status CheckForeignFormat(const ByteSource& source);

// Returns whether the file begins as a safetensors file does: with the length of a header that it has room for, and its
// "{".
absl::StatusOr<bool> IsSafetensors(const ByteSource& source);

}  // namespace lockstep::checkpoint::file

#endif  // LOCKSTEP_CHECKPOINT_FILE_FOREIGN_FORMAT_H_
