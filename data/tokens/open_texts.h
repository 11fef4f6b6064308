// Opens the texts, or the tokens, that a program's flags name.

#ifndef LOCKSTEP_DATA_TOKENS_OPEN_TEXTS_H_
#define LOCKSTEP_DATA_TOKENS_OPEN_TEXTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/data/tokens/token_dataset.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace lockstep::data {

// Returns the blocks of files of tokens, if the first one ends with ".bin", or of texts, or, without files, of the King
// James Bible (king_james_bible.h). Reads the first and the last block: the wrong vocabulary mostly shows there.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer("books.model"));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const auto blocks, data::OpenTexts({"a.txt", "b.txt"}, "books.model", *tokenizer, {.block = 128}));
//
// Texts are encoded once, by `tokenizer`, which LoadTokenizer() has found by the name `tokenizer_name`. The tokens are in
// $XDG_CACHE_HOME/lockstep/tokens, or ~/.cache/lockstep/tokens, in one file for the same texts and tokenizer. If one of
// these has changed, its tokens are written anew, and the old file is removed; who has opened it reads on. When a file is
// written, those are removed too that nobody has opened for 30 days. The folder may be removed at any time. All ranks of a
// host may call this at once.
//
// With texts, options.end_of_text is the tokenizer's. InvalidArgument: `tokenizer` has more tokens than
// options.vocabulary, if that is positive, or a text is compressed. Unavailable: the folder cannot be made. Other errors
// are EncodeTextFiles()'s, KingJamesBible()'s and TokenDataset's.
absl::StatusOr<std::unique_ptr<TokenDataset>> OpenTexts(const std::vector<std::string>& files,
                                                        const std::string& tokenizer_name, const Tokenizer& tokenizer,
                                                        TokenDatasetOptions options);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_OPEN_TEXTS_H_
