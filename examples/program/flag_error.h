// Errors for flags, with the same wording in every example.

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

// The range of a flag, including its ends. `most` avoids overflow in sums and products of flags.
struct FlagRange {
  std::string flag;
  double value;
  double least;
  double most = 1e9;
};

// FlagError for the first value outside its range. NaN and infinity are outside every range.
absl::Status CheckRanges(const std::vector<FlagRange>& ranges);

// The same for a timeout, which must be a positive number of seconds, at most 1e9.
absl::Status CheckSeconds(absl::string_view flag, double value);

// Returns `status` with "rank N: " before its message, unless it is already there.
absl::Status OfRank(const absl::Status& status, int rank);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRAM_FLAG_ERROR_H_
