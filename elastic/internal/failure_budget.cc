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

constexpr char kErrorOf[] = "error of rank ", kErrorOfAll[] = "error of all ranks in step ";

// What the launcher says of a rank that it has killed (Attempt::Carry() in tools/launch).
constexpr char kStuck[] = "(SIGKILL): it had not left generation ";

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

// By an exit, by a signal with which a process ends itself, or because the rank was stuck. The other signals come from
// outside.
bool IsOwn(absl::string_view cause) {
  for (const char* name : {"(SIGABRT)", "(SIGSEGV)", "(SIGBUS)", "(SIGFPE)", "(SIGILL)", kStuck}) {
    if (absl::StrContains(cause, name)) return true;
  }
  return absl::StartsWith(cause, "exited with code ");
}

// Of the rank that the sentence is about, perhaps on a host.
std::optional<Failure> FailureIn(absl::string_view sentence) {
  const size_t host_ends = absl::StartsWith(sentence, "host ") ? sentence.find(": ") : absl::string_view::npos;
  const std::string text(host_ends == absl::string_view::npos ? sentence : sentence.substr(host_ends + 2));
  Failure failure;
  int begin = 0;
  if (sscanf(text.c_str(), "rank %d (local rank %*d, pid %*d) %n", &failure.rank, &begin) != 1 || begin == 0) {
    return std::nullopt;
  }
  failure.cause = text.substr(begin);
  return failure;
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
  const auto place = [](std::string* out, const Failure& f) { absl::StrAppend(out, Who(f.rank), " in step ", f.step); };
  return absl::StrCat(Who(failure.rank), " failed in step ", failure.step, ": ", failure.cause,
                      "; the job ends, since this cause came ", same.size(), " times within ", window_,
                      " steps: ", absl::StrJoin(same, ", ", place));
}

std::string ErrorText(const Failure& failure) {
  return absl::StrCat("error of ", Who(failure.rank), " in step ", failure.step, ": ", failure.cause);
}

std::optional<Failure> HeardFailure(absl::string_view message) {
  const std::string text(message);
  Failure failure;
  int begin = 0;
  if (sscanf(text.c_str(), "rank %d (host %*[^,], pid %*d): %n", &failure.rank, &begin) != 1 || begin == 0) {
    return std::nullopt;
  }
  failure.cause = text.substr(begin);
  return failure;
}

std::optional<Failure> OwnFailure(absl::string_view reason) {
  std::string text(reason);
  Failure failure;
  int begin = 0;
  if (const size_t at = text.rfind(kErrorOfAll); at != std::string::npos) {
    text = text.substr(at + strlen(kErrorOfAll));
    long long step = 0;
    if (sscanf(text.c_str(), "%lld: %n", &step, &begin) != 1 || begin == 0) return std::nullopt;
    return Failure{step, -1, text.substr(begin)};
  }
  if (const size_t at = text.rfind(kErrorOf); at != std::string::npos) {
    text = text.substr(at + strlen(kErrorOf));
    long long step = 0;
    if (sscanf(text.c_str(), "%d in step %lld: %n", &failure.rank, &step, &begin) != 2 || begin == 0)
      return std::nullopt;
    failure.step = step;
    failure.cause = text.substr(begin);
    return failure;
  }
  // The failures of several ranks. The first one counts, or else that of a rank that was stuck after it.
  for (size_t begin = 0;;) {
    const size_t end = std::min(text.find("; rank ", begin), text.find("; host ", begin));
    const std::optional<Failure> failed = FailureIn(text.substr(begin, end - begin));
    if (failed && (begin == 0 ? IsOwn(failed->cause) : absl::StrContains(failed->cause, kStuck))) return failed;
    if (end == std::string::npos) return std::nullopt;
    begin = end + 2;
  }
}

}  // namespace lockstep::elastic::internal
