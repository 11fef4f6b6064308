// Text as tokens, and tokens as text.

#ifndef LOCKSTEP_DATA_TOKENS_TOKENIZER_H_
#define LOCKSTEP_DATA_TOKENS_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep::data {

// ByteTokenizer, SentencePieceTokenizer, or another that you implement. LoadTokenizer() finds one by its name.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<data::Tokenizer> tokenizer, data::LoadTokenizer("books.model"));
//   LOCKSTEP_ASSIGN_OR_RETURN(std::vector<int64_t> tokens, tokenizer->Encode("In the beginning"));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(tokens));
//
// Thread safety: all functions may be called by several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The number of different tokens. Tokens are in [0, vocab_size()).
  virtual int64_t vocab_size() const = 0;
  // The token between two texts. No text has it among its own tokens.
  virtual int64_t end_of_text() const = 0;

  // The tokens of `text`, without end_of_text(). InvalidArgument: the tokenizer has no tokens for such a text.
  virtual absl::StatusOr<std::vector<int64_t>> Encode(absl::string_view text) const = 0;

  // The text of `tokens`. end_of_text() gives nothing. Tokens that a model has generated may give text that is not UTF-8.
  // InvalidArgument: a token is not in the vocabulary.
  virtual absl::StatusOr<std::string> Decode(absl::Span<const int64_t> tokens) const = 0;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_TOKENIZER_H_
