// A checkpoint's tensors as a few bytes, to compare runs on different machines.

#ifndef LOCKSTEP_CHECKPOINT_INSPECT_DIGEST_H_
#define LOCKSTEP_CHECKPOINT_INSPECT_DIGEST_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::inspect {

// A line for each tensor, in the order of their names: the SHA-256 of its dtype, shape and elements, two spaces, and
// its name in Leaves(). The last line is the SHA-256 of the lines before it, and "all tensors". Nothing else of the
// value counts: no other value, order of keys, stride or storage. Returns the errors of Leaves().
absl::StatusOr<std::string> DigestText(const Value& value);

}  // namespace lockstep::checkpoint::inspect

#endif  // LOCKSTEP_CHECKPOINT_INSPECT_DIGEST_H_
