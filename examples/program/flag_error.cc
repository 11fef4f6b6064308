#include "lockstep/examples/program/flag_error.h"

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"

namespace lockstep::examples {
absl::Status FlagError(absl::string_view flag, const absl::AlphaNum& value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": expected ", expected));
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

absl::Status CheckSeconds(absl::string_view flag, double value) {
  if (value > 0 && value <= 1e9) return absl::OkStatus();
  return FlagError(flag, value, "a positive number of seconds, at most 1000000000");
}

absl::Status OfRank(const absl::Status& status, int rank) {
  const std::string name = absl::StrCat("rank ", rank);
  for (const char* const end : {":", " "}) {
    if (absl::StartsWith(status.message(), absl::StrCat(name, end))) return status;
  }
  return Annotate(status, name);
}

}  // namespace lockstep::examples
