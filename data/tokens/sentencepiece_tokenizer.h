// The tokens of a sentencepiece model, which Llama, T5 and others have.

#ifndef LOCKSTEP_DATA_TOKENS_SENTENCEPIECE_TOKENIZER_H_
#define LOCKSTEP_DATA_TOKENS_SENTENCEPIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/data/tokens/tokenizer.h"

namespace lockstep::data {
namespace internal {
class SentencePieceModel;
}

struct SentencePieceOptions {
  // The part of the text's characters that may become tokens. The others, the rarest, are encoded as bytes.
  double character_coverage = 0.9995;  // 0.98 to 1
  // The files are read, in their order, up to so many bytes. Training needs some 10 bytes of memory for each.
  int64_t most_text_bytes = int64_t{256} << 20;
};

// Tokens are the pieces of the system's sentencepiece (Kudo and Richardson, 2018, arXiv:1808.06226), and so are the
// results: equal to Python's `SentencePieceProcessor`.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto tokenizer,
//                             data::SentencePieceTokenizer::Train({"books.txt"}, "books.model", /*vocab_size=*/4096));
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto same, data::SentencePieceTokenizer::Load("books.model"));
//
// sentencepiece's own messages on stderr are turned off for the whole process.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Reads a .model file, from here or from Python. Its `eos` piece becomes end_of_text(). Errors name the file.
  // NotFound: it does not exist. DataLoss: it is not a model, is damaged, or has more than 256 MiB. InvalidArgument: it
  // has no `eos` piece, or is not a regular file.
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Load(const std::string& model_file);

  // Learns `vocab_size` tokens from the lines of the files, writes them to `model_file` in one step, and loads it. The
  // same text gives the same bytes, also on another machine. Tokens are merged pairs (BPE) as in Llama's model: each byte
  // has a token, so any text has tokens, and Decode() returns it exactly. (There is one exception: U+2581, which stands
  // for a space in sentencepiece, comes back as one.) No token reaches over the end of a line or has a space behind a
  // letter. Blocks: the 4.1 MB of the King James Bible take 2 s of processor time.
  //
  // Errors name the file. NotFound: it does not exist. InvalidArgument: it is empty or not UTF-8, an option is out of
  // range, or vocab_size is too large or too small for the text. Other errors are the system's.
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Train(const std::vector<std::string>& text_files,
                                                                       const std::string& model_file,
                                                                       int64_t vocab_size,
                                                                       const SentencePieceOptions& options = {});

  ~SentencePieceTokenizer() override;

  int64_t vocab_size() const override;
  int64_t end_of_text() const override;
  // InvalidArgument: the text is not UTF-8. The error says in which line.
  absl::StatusOr<std::vector<int64_t>> Encode(absl::string_view text) const override;
  absl::StatusOr<std::string> Decode(absl::Span<const int64_t> tokens) const override;

 private:
  explicit SentencePieceTokenizer(std::unique_ptr<internal::SentencePieceModel> model);

  const std::unique_ptr<internal::SentencePieceModel> model_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_SENTENCEPIECE_TOKENIZER_H_
