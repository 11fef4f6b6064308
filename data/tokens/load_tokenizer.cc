#include "lockstep/data/tokens/load_tokenizer.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/data/tokens/byte_tokenizer.h"
#include "lockstep/data/tokens/sentencepiece_tokenizer.h"

namespace lockstep::data {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(absl::string_view name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  if (absl::EndsWith(name, ".model")) return SentencePieceTokenizer::Load(std::string(name));
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer \"", name, "\": expected \"bytes\" or the path of a sentencepiece model, FILE.model"));
}

}  // namespace lockstep::data
