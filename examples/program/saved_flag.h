// Compares flags with the checkpoint from which a run resumes.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_SAVED_FLAG_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_SAVED_FLAG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::examples {

// FlagError, "--batch_size=40: expected 20, as in the checkpoint": `checkpoint` has another value. The value's key is
// the flag's name with underscores. A checkpoint without the key has 0.
absl::Status CheckSavedFlag(const checkpoint::Value& checkpoint, absl::string_view flag, int64_t value);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_SAVED_FLAG_H_
