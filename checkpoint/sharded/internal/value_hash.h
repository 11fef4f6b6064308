// A hash of a value's contents, by which ranks find out whether they have the same.

#ifndef LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_VALUE_HASH_H_
#define LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_VALUE_HASH_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::internal {

// A CRC-32 of types, bits of numbers, keys, and tensors' dtypes, shapes and elements. Strides, devices, gradient flags,
// sharing, and the order of a dict that is not an OrderedDict do not matter. Takes one pass over the tensors; a tensor
// on a device, or one that is not contiguous, is copied to host memory meanwhile. Requires: the value nests no deeper
// than Save allows.
//
// InvalidArgument, Unimplemented: Save would reject a tensor. Throws LibTorch's exception if a device fails.
absl::StatusOr<uint32_t> HashOf(const Value& value);

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_SHARDED_INTERNAL_VALUE_HASH_H_
