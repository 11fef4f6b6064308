#include "lockstep/launch/report/failure.h"

#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "lockstep/launch/report/failure_payloads.h"

namespace lockstep::launch {
namespace {

std::optional<int> NumberIn(const absl::Status& status, const char* payload_url) {
  const auto payload = status.GetPayload(payload_url);
  int number;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &number)) return std::nullopt;
  return number;
}

}  // namespace

std::optional<RankFailure> FirstFailure(const absl::Status& status) {
  const auto payload = status.GetPayload(kFailurePayload);
  if (!payload) return std::nullopt;
  const std::string text(*payload);
  const std::vector<std::string> fields = absl::StrSplit(text, absl::MaxSplits(' ', 5));
  RankFailure f;
  if (fields.size() != 6 || !absl::SimpleAtoi(fields[0], &f.local_rank) || !absl::SimpleAtoi(fields[1], &f.rank) ||
      !absl::SimpleAtoi(fields[2], &f.pid) || !absl::SimpleAtoi(fields[3], &f.exit_code) ||
      !absl::SimpleAtoi(fields[4], &f.signal)) {
    return std::nullopt;
  }
  f.message = fields[5];
  if (const auto log = status.GetPayload(kStderrPayload)) {
    f.stderr_lines = absl::StrSplit(std::string(*log), '\n');
    f.stderr_file = f.stderr_lines.front();
    f.stderr_lines.erase(f.stderr_lines.begin());
  }
  return f;
}

int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  if (const auto signal = NumberIn(status, kSignalPayload)) return 128 + *signal;
  if (const auto code = NumberIn(status, kNotExecutedPayload)) return *code;
  const std::optional<RankFailure> failure = FirstFailure(status);
  if (!failure) return 1;
  if (failure->signal != 0) return 128 + failure->signal;
  const bool is_shells = failure->exit_code == kNotExecutable || failure->exit_code == kNotFound;
  return failure->exit_code > 0 && !is_shells ? failure->exit_code : 1;
}

}  // namespace lockstep::launch
