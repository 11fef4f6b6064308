// The check of tokens against a vocabulary.

#ifndef LOCKSTEP_DATA_TOKENS_INTERNAL_CHECK_TOKENS_H_
#define LOCKSTEP_DATA_TOKENS_INTERNAL_CHECK_TOKENS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace lockstep::data::internal {

// InvalidArgument: a token is not in [0, vocab_size). The error names its place, the first of `tokens` being `first`.
inline absl::Status CheckTokens(absl::Span<const int64_t> tokens, int64_t vocab_size, int64_t first = 0) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrCat("token ", first + i, " is ", tokens[i], ", expected 0 to ",
                                                   vocab_size - 1, ", as the vocabulary has ", vocab_size, " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_TOKENS_INTERNAL_CHECK_TOKENS_H_
