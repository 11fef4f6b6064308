// A token for each byte.

#ifndef LOCKSTEP_DATA_TOKENS_BYTE_TOKENIZER_H_
#define LOCKSTEP_DATA_TOKENS_BYTE_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace lockstep::data {

// Needs no model. Takes any bytes: Encode() has no errors, and Decode() returns them exactly.
class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 257; }
  int64_t end_of_text() const override { return 256; }
  absl::StatusOr<std::vector<int64_t>> Encode(absl::string_view text) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int64_t> tokens) const override;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_BYTE_TOKENIZER_H_
