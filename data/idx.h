// IDX, the file format of MNIST and its kin, as http://yann.lecun.com/exdb/mnist describes it ("The IDX file format").

#ifndef LOCKSTEP_DATA_IDX_H_
#define LOCKSTEP_DATA_IDX_H_

#include <ATen/core/Tensor.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::data {

// The contents of the IDX file at `path`, plain or in gzip (told apart by its first bytes, whatever its name), as a
// contiguous uint8 tensor on the CPU of the sizes that its header gives. Only element type 0x08, unsigned byte, and 1
// to 8 dimensions are read.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor images, data::ReadIdx("train-images-idx3-ubyte.gz"));  // [60000, 28, 28]
//
// The whole file is checked: its sizes account for every byte, and gzip's own checksum and length hold. What a header
// claims costs nothing: memory grows with the bytes that are there, to at most about three times as many.
//
// Errors are one line that starts with `path`. NotFound, PermissionDenied, ...: what opening or reading it met.
// InvalidArgument: it is no IDX file of bytes. DataLoss: it is truncated, too long, or its gzip is damaged.
// ResourceExhausted or Internal: memory ran out.
absl::StatusOr<at::Tensor> ReadIdx(absl::string_view path);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_IDX_H_
