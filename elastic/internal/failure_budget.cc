#include "lockstep/elastic/internal/failure_budget.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::elastic::internal {

using launch::StepFailure;

namespace {

std::string Who(int rank) { return rank < 0 ? "all ranks" : absl::StrCat("rank ", rank); }

// `cause` with "#" for each number.
std::string WithoutNumbers(absl::string_view cause) {
  std::string text;
  for (const char c : cause) {
    if (!absl::ascii_isdigit(c)) {
      text.push_back(c);
    } else if (text.empty() || text.back() != '#') {
      text.push_back('#');
    }
  }
  return text;
}

}  // namespace

void FailureBudget::Add(const StepFailure& failure) {
  failures_.push_back(failure);
  const int64_t oldest = failure.step - window_;
  failures_.erase(
      std::remove_if(failures_.begin(), failures_.end(), [&](const StepFailure& f) { return f.step < oldest; }),
      failures_.end());
}

std::optional<std::string> FailureBudget::Verdict() const {
  if (failures_.empty()) return std::nullopt;
  const StepFailure& failure = failures_.back();
  std::vector<StepFailure> same;
  for (const StepFailure& other : failures_) {
    if (WithoutNumbers(other.cause) == WithoutNumbers(failure.cause)) same.push_back(other);
  }
  if (most_ == 0 || static_cast<int>(same.size()) < most_) return std::nullopt;
  const auto place = [](std::string* out, const StepFailure& f) {
    absl::StrAppend(out, Who(f.rank), " in step ", f.step);
  };
  return absl::StrCat(Who(failure.rank), " failed in step ", failure.step, ": ", failure.cause,
                      "; the job ends, since this cause came ", same.size(), " times within ", window_,
                      " steps: ", absl::StrJoin(same, ", ", place));
}

std::string ErrorText(const StepFailure& failure) {
  return absl::StrCat("error of ", Who(failure.rank), " in step ", failure.step, ": ", failure.cause);
}

}  // namespace lockstep::elastic::internal
