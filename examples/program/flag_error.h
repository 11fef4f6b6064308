// What is wrong with a flag, as every example words it.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::examples {

// InvalidArgument: "--epochs=0: expected 1 or more".
inline absl::Status FlagError(absl::string_view flag, const absl::AlphaNum& value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": expected ", expected));
}

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_
