#include "lockstep/base/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// `status`, with its payloads, and another message.
absl::Status WithMessage(const absl::Status& status, const std::string& message) {
  absl::Status other(status.code(), message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) { other.SetPayload(url, payload); });
  return other;
}

}  // namespace

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  return status.ok() ? status : WithMessage(status, absl::StrCat(context, ": ", status.message()));
}

absl::Status WithEnding(const absl::Status& status, absl::string_view ending) {
  return status.ok() ? status : WithMessage(status, absl::StrCat(status.message(), ending));
}

}  // namespace lockstep
