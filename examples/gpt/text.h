// The text that a GPT is trained on.

#ifndef LOCKSTEP_EXAMPLES_GPT_TEXT_H_
#define LOCKSTEP_EXAMPLES_GPT_TEXT_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/data/tokens/token_dataset.h"
#include "lockstep/data/tokens/tokenizer.h"
#include "lockstep/models/transformer/config.h"

namespace lockstep::examples {

struct Text {
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::unique_ptr<data::TokenDataset> blocks;

  // The last twentieth of the blocks is not trained on.
  int64_t train_blocks() const { return blocks->size() - std::max<int64_t>(1, blocks->size() / 20); }
};

// Opens the files in `files`, with commas between them, as blocks of `block` tokens: tokens (.bin), or texts. Texts are
// encoded once, into the user's cache folder. No file: the King James Bible (data/tokens). Checks
// that the vocabulary of `config` has all tokens. Errors name the flag or the file.
absl::StatusOr<Text> OpenText(const std::string& files, const std::string& tokenizer_name,
                              std::unique_ptr<data::Tokenizer> tokenizer, int64_t block,
                              const models::CausalLMConfig& config);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_GPT_TEXT_H_
