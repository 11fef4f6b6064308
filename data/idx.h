// IDX, the file format of MNIST and similar datasets, as described at http://yann.lecun.com/exdb/mnist ("The IDX file
// format").

#ifndef LOCKSTEP_DATA_IDX_H_
#define LOCKSTEP_DATA_IDX_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data {

// Reads the IDX file at `path`, plain or gzip. The first bytes of the file distinguish the two, not its name. Returns a
// contiguous uint8 tensor on the CPU with the sizes of the header. Only element type 0x08 (unsigned byte) and 1 to 8
// dimensions are supported.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor images, data::ReadIdx("train-images-idx3-ubyte.gz"));  // [60000, 28, 28]
//
// The whole file is checked: its sizes account for every byte, and gzip's checksum and length match. Memory grows with
// the bytes in the file, to at most about three times as many. A header that claims a large size costs nothing.
//
// Errors are one line that starts with `path`. NotFound, PermissionDenied, ...: the file cannot be opened or read.
// InvalidArgument: it is not an IDX file of bytes. DataLoss: it is truncated, too long, or its gzip data is damaged.
// ResourceExhausted or Internal: memory ran out.
absl::StatusOr<at::Tensor> ReadIdx(absl::string_view path);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IDX_H_
