// Checks of flags' values, with the same wording in every program.

#ifndef LOCKSTEP_BASE_FLAG_ERROR_H_
#define LOCKSTEP_BASE_FLAG_ERROR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep {

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

// FlagError if `value` is not a multiple of `number`.
absl::Status CheckMultiple(absl::string_view flag, int64_t value, int64_t number);

// FlagError unless a timeout is a positive number of seconds, at most 1e9.
absl::Status CheckSeconds(absl::string_view flag, double value);

// "a, b or c", without the empty text.
std::string Alternatives(std::vector<std::string> texts);

// FlagError if `value` is not one of `choices`.
absl::Status CheckChoice(absl::string_view flag, const std::string& value, const std::vector<std::string>& choices);

// The items of a list with commas between them. FlagError: there is no item, or an item is not one of `choices`. An
// empty item never is.
absl::StatusOr<std::vector<std::string>> FlagItems(absl::string_view flag, const std::string& value,
                                                   const std::vector<std::string>& choices);

// The whole numbers of a list with commas between them. FlagError: there is none, or an item is not a whole number in
// the range, which includes its ends.
absl::StatusOr<std::vector<int64_t>> FlagNumbers(absl::string_view flag, const std::string& value, int64_t least,
                                                 int64_t most);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FLAG_ERROR_H_
