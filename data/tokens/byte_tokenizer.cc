#include "lockstep/data/tokens/byte_tokenizer.h"

#include "lockstep/base/status.h"
#include "lockstep/data/tokens/internal/check_tokens.h"

namespace lockstep::data {

absl::StatusOr<std::vector<int64_t>> ByteTokenizer::Encode(absl::string_view text) const {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte));
  return tokens;
}

absl::StatusOr<std::string> ByteTokenizer::Decode(absl::Span<const int64_t> tokens) const {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckTokens(tokens, vocab_size()));
  std::string text;
  for (const int64_t token : tokens) {
    if (token != end_of_text()) text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace lockstep::data
