#include "lockstep/base/torch_status.h"

#include <new>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/status.h"

namespace lockstep {
namespace {

std::string OneLine(absl::string_view text) {
  std::vector<absl::string_view> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) lines.push_back(line);
  }
  return absl::StrJoin(lines, " ");
}

bool SaysTimeout(absl::string_view message) {
  const std::string lower = absl::AsciiStrToLower(message);
  return absl::StrContains(lower, "timed out") || absl::StrContains(lower, "timeout");
}

absl::StatusCode CodeOf(const c10::Error& error, absl::string_view message) {
  if (dynamic_cast<const c10::IndexError*>(&error)) return absl::StatusCode::kOutOfRange;
  if (dynamic_cast<const c10::ValueError*>(&error) || dynamic_cast<const c10::TypeError*>(&error) ||
      dynamic_cast<const c10::LinAlgError*>(&error)) {
    return absl::StatusCode::kInvalidArgument;
  }
  if (dynamic_cast<const c10::NotImplementedError*>(&error)) return absl::StatusCode::kUnimplemented;
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return absl::StatusCode::kResourceExhausted;
  if (SaysTimeout(message)) return absl::StatusCode::kDeadlineExceeded;
  if (dynamic_cast<const c10::DistError*>(&error)) return absl::StatusCode::kUnavailable;
  return absl::StatusCode::kInternal;
}

absl::Status Translate(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StatusError& e) {
    return e.status();
  } catch (const c10::Error& e) {
    const std::string message = OneLine(e.what_without_backtrace());
    return absl::Status(CodeOf(e, message), message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    const std::string message = OneLine(e.what());
    return absl::Status(SaysTimeout(message) ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kInternal,
                        message);
  } catch (...) {
    return absl::InternalError("an exception that is not a std::exception");
  }
}

}  // namespace

StatusError::StatusError(absl::Status status)
    : c10::DistBackendError(c10::SourceLocation{__func__, __FILE__, __LINE__}, std::string(status.message())),
      status_(std::move(status)) {}

void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

absl::Status StatusFromException(std::exception_ptr error, absl::string_view context) {
  const absl::Status status = Translate(error);
  return context.empty() ? status : Annotate(status, context);
}

}  // namespace lockstep
