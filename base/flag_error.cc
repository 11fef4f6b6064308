#include "lockstep/base/flag_error.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/printable.h"

namespace lockstep {

absl::Status FlagError(absl::string_view flag, const absl::AlphaNum& value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", Printable(value.Piece()), ": expected ", expected));
}

absl::Status CheckRanges(const std::vector<FlagRange>& ranges) {
  for (const FlagRange& range : ranges) {
    if (!(range.value >= range.least)) {
      return FlagError(range.flag, range.value, absl::StrCat(range.least, " or more"));
    }
    if (range.value > range.most) {
      return FlagError(range.flag, range.value, absl::StrFormat("at most %.0f", range.most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMultiple(absl::string_view flag, int64_t value, int64_t number) {
  return value % number == 0 ? absl::OkStatus() : FlagError(flag, value, absl::StrCat("a multiple of ", number));
}

absl::Status CheckSeconds(absl::string_view flag, double value) {
  if (value > 0 && value <= 1e9) return absl::OkStatus();
  return FlagError(flag, value, "a positive number of seconds, at most 1000000000");
}

std::string Alternatives(std::vector<std::string> texts) {
  texts.erase(std::remove(texts.begin(), texts.end(), ""), texts.end());
  if (texts.size() < 2) return absl::StrJoin(texts, "");
  const std::string last = texts.back();
  texts.pop_back();
  return absl::StrCat(absl::StrJoin(texts, ", "), " or ", last);
}

absl::Status CheckChoice(absl::string_view flag, const std::string& value, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return absl::OkStatus();
  return FlagError(flag, value, Alternatives(choices));
}

absl::StatusOr<std::vector<std::string>> FlagItems(absl::string_view flag, const std::string& value,
                                                   const std::vector<std::string>& choices) {
  std::vector<std::string> items = absl::StrSplit(value, ',');
  for (const std::string& item : items) {
    if (item.empty() || !CheckChoice(flag, item, choices).ok()) {
      return FlagError(flag, value,
                       absl::StrCat(Alternatives(choices), ", or several of them with a comma between two"));
    }
  }
  return items;
}

absl::StatusOr<std::vector<int64_t>> FlagNumbers(absl::string_view flag, const std::string& value, int64_t least,
                                                 int64_t most) {
  std::vector<int64_t> numbers;
  for (const absl::string_view item : absl::StrSplit(value, ',')) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(item, &number) || number < least || number > most) {
      return FlagError(flag, value,
                       absl::StrCat("whole numbers from ", least, " to ", most, " with a comma between two"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace lockstep
