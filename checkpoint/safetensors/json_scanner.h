// Reads JSON (RFC 8259) from start to end in the form that its caller expects. Any other form is an error, so the
// caller determines the depth of nesting.
//
//   JsonScanner json(text, memory_limit);
//   LOCKSTEP_RETURN_IF_ERROR(json.Object([&](std::string key) -> absl::Status {
//     LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t value, json.Unsigned());
//     ...
//   }));
//   LOCKSTEP_RETURN_IF_ERROR(json.End());

#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_JSON_SCANNER_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_JSON_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep::checkpoint::safetensors {

class JsonScanner {
 public:
  // `text` must outlive the scanner. `memory_limit`: bytes that may be charged.
  JsonScanner(absl::string_view text, size_t memory_limit) : text_(text), memory_left_(memory_limit) {}

  // Each skips spaces and reads the next item. DataLoss, naming the byte: it is another kind of item.

  // Calls `member` with each member's key; `member` takes the value.
  absl::Status Object(absl::FunctionRef<absl::Status(std::string)> member);
  // Calls `element`, which takes it, for each element.
  absl::Status Array(absl::FunctionRef<absl::Status()> element);
  // Its length is charged before it is copied. UTF-8, and escapes of single surrogates are refused.
  absl::StatusOr<std::string> String();
  // A whole number from 0 to 2^64 - 1 without fraction and exponent.
  absl::StatusOr<uint64_t> Unsigned();
  absl::Status End();

  // Call it before allocating this much memory for the read data. ResourceExhausted: the limit is exceeded.
  absl::Status Charge(size_t bytes);

 private:
  bool Take(char wanted);
  absl::Status Expect(char wanted);
  absl::Status Members(char closing, absl::FunctionRef<absl::Status()> member);
  absl::Status Unescape(absl::string_view raw, std::string& to) const;
  absl::Status Error(absl::string_view what) const;

  absl::string_view text_;
  size_t at_ = 0;
  size_t memory_left_;
};

// `text` as JSON, with its quotes; what must be escaped is, and nothing else. Requires: IsUtf8(text).
std::string JsonString(absl::string_view text);

}  // namespace lockstep::checkpoint::safetensors

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_JSON_SCANNER_H_
