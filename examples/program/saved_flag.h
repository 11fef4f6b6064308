// Compares flags with the checkpoint from which a run resumes.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_SAVED_FLAG_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_SAVED_FLAG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::examples {

// FlagError, "--batch_size=40: expected 20, as in the checkpoint": `checkpoint` has another value. The value's key is
// the flag's name with underscores. A checkpoint without the key has 0.
inline absl::Status CheckSavedFlag(const checkpoint::Value& checkpoint, absl::string_view flag, int64_t value) {
  const std::string key = absl::StrReplaceAll(flag, {{"-", "_"}});
  int64_t saved = 0;
  if (checkpoint.Find(key)) {
    LOCKSTEP_ASSIGN_OR_RETURN(saved, checkpoint::GetInt(checkpoint, key));
  }
  if (value == saved) return absl::OkStatus();
  return FlagError(flag, value, absl::StrCat(saved, ", as in the checkpoint"));
}

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_SAVED_FLAG_H_
