// From text files to a file of tokens.

#ifndef LOCKSTEP_DATA_TOKENS_ENCODE_TEXT_FILES_H_
#define LOCKSTEP_DATA_TOKENS_ENCODE_TEXT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace lockstep::data {

// Writes the tokens of each text, and end_of_text() behind it, into the file `out`, as TokenFileWriter does. Returns the
// number of tokens. Memory does not grow with the texts.
//
// A text is encoded in pieces of at most 64 KiB, which end behind a newline, and only in a longer line elsewhere: each
// piece as if it were a whole text. Tokens of SentencePieceTokenizer::Train() do not reach over a newline, so lines up to that
// length have the tokens that Encode() gives to the whole text.
//
// Errors name the text, and the place of the piece in it. InvalidArgument: a text is empty, or the tokenizer does not
// take it. Others come from opening a text and from TokenFileWriter. After an error `out` is as it was.
absl::StatusOr<int64_t> EncodeTextFiles(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                        const std::string& out);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_ENCODE_TEXT_FILES_H_
