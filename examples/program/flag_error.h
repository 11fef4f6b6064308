// What is wrong with a flag, as every example words it.

#ifndef LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_
#define LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::examples {

// InvalidArgument: "--epochs=0: expected 1 or more".
absl::Status FlagError(absl::string_view flag, const absl::AlphaNum& value, absl::string_view expected);

// The numbers that a flag may have, its ends included. `most` keeps sums and products of flags in their types.
struct FlagRange {
  std::string flag;
  double value;
  double least;
  double most = 1e9;
};

// FlagError for the first value that is not in its range; NaN and infinity never are.
absl::Status CheckRanges(const std::vector<FlagRange>& ranges);

// The same of a timeout, which must be a positive number of seconds, up to 1e9.
absl::Status CheckSeconds(absl::string_view flag, double value);

// `status` with "rank N: " before its message, unless the message begins so.
absl::Status OfRank(const absl::Status& status, int rank);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_
