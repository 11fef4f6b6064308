// Finds a tokenizer by the name that a program's flag has.

#ifndef LOCKSTEP_DATA_TOKENS_LOAD_TOKENIZER_H_
#define LOCKSTEP_DATA_TOKENS_LOAD_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace lockstep::data {

// `name` is "bytes", which is a ByteTokenizer, or the path of a sentencepiece model, which ends with ".model".
// InvalidArgument: it is neither. Other errors come from SentencePieceTokenizer::Load().
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(absl::string_view name);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_LOAD_TOKENIZER_H_
