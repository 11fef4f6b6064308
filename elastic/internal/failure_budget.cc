#include "lockstep/elastic/internal/failure_budget.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::elastic::internal {
namespace {

constexpr char kErrorOf[] = "error of rank ";

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

// Signals by which a process ends itself. The other ones come from outside.
bool IsOwnSignal(absl::string_view cause) {
  for (const char* name : {"(SIGABRT)", "(SIGSEGV)", "(SIGBUS)", "(SIGFPE)", "(SIGILL)"}) {
    if (absl::StrContains(cause, name)) return true;
  }
  return false;
}

}  // namespace

void FailureBudget::Add(const Failure& failure) {
  failures_.push_back(failure);
  const int64_t oldest = failure.step - window_;
  failures_.erase(std::remove_if(failures_.begin(), failures_.end(), [&](const Failure& f) { return f.step < oldest; }),
                  failures_.end());
}

std::optional<std::string> FailureBudget::Verdict() const {
  if (failures_.empty()) return std::nullopt;
  const Failure& failure = failures_.back();
  std::vector<Failure> same;
  for (const Failure& other : failures_) {
    if (WithoutNumbers(other.cause) == WithoutNumbers(failure.cause)) same.push_back(other);
  }
  if (most_ == 0 || static_cast<int>(same.size()) < most_) return std::nullopt;
  const auto place = [](std::string* out, const Failure& f) {
    absl::StrAppend(out, "rank ", f.rank, " in step ", f.step);
  };
  return absl::StrCat("rank ", failure.rank, " failed in step ", failure.step, ": ", failure.cause,
                      "; the job ends, since this cause came ", same.size(), " times within ", window_,
                      " steps: ", absl::StrJoin(same, ", ", place));
}

std::string ErrorText(const Failure& failure) {
  return absl::StrCat(kErrorOf, failure.rank, " in step ", failure.step, ": ", failure.cause);
}

std::optional<Failure> OwnFailure(absl::string_view reason) {
  std::string text(reason);
  Failure failure;
  int begin = 0;
  if (const size_t at = text.rfind(kErrorOf); at != std::string::npos) {
    text = text.substr(at + strlen(kErrorOf));
    long long step = 0;
    if (sscanf(text.c_str(), "%d in step %lld: %n", &failure.rank, &step, &begin) != 2 || begin == 0)
      return std::nullopt;
    failure.step = step;
    failure.cause = text.substr(begin);
    return failure;
  }
  if (sscanf(text.c_str(), "rank %d (local rank %*d, pid %*d) %n", &failure.rank, &begin) != 1 || begin == 0) {
    return std::nullopt;
  }
  failure.cause = text.substr(begin, text.find("; rank ", begin) - begin);  // other ranks' failures may follow
  if (absl::StartsWith(failure.cause, "exited with code ") || IsOwnSignal(failure.cause)) return failure;
  return std::nullopt;
}

}  // namespace lockstep::elastic::internal
