#include "lockstep/data/tokens/sentencepiece_tokenizer.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/text.h"
#include "lockstep/data/tokens/internal/character_map.h"
#include "lockstep/data/tokens/internal/check_tokens.h"
#include "lockstep/data/tokens/internal/file_pieces.h"
#include "lockstep/data/tokens/internal/sentencepiece_model.h"

namespace lockstep::data {
namespace {

using ::lockstep::checkpoint::file::AtomicFile;
using ::lockstep::checkpoint::file::IsUtf8;
using ::lockstep::checkpoint::file::ReadFile;
using ::lockstep::data::internal::FilePieces;
using ::lockstep::data::internal::SentencePieceModel;

constexpr uint64_t kMostModelBytes = 256 << 20;
constexpr int64_t kOtherTokens = 3 + 256;  // <unk>, <s>, </s>, and the bytes

absl::Status NotUtf8(int64_t line, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, " is not UTF-8: ", Printable(text.substr(0, 60))));
}

absl::Status CheckUtf8(absl::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!IsUtf8(line)) return NotUtf8(number, line);
  }
  return absl::OkStatus();  // never: a line's end is in no sequence
}

// The lines of text files, one by one.
class Lines {
 public:
  Lines(const std::vector<std::string>& files, int64_t most_bytes) : files_(files), left_(most_bytes) {}

  // Writes the next line into `line`. False at the end, and after an error.
  bool Next(std::string& line) {
    while (rest_.empty()) {
      const absl::StatusOr<bool> more = NextPiece();
      status_.Update(more.status());
      if (!more.ok() || !*more) return false;
    }
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    line.assign(rest_.data(), end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    characters_ = characters_ || !line.empty();
    if (!IsUtf8(line)) status_.Update(Annotate(NotUtf8(line_, line), files_[file_]));
    return status_.ok();
  }

  const absl::Status& status() const { return status_; }
  bool characters() const { return characters_; }  // whether any line had one

 private:
  absl::StatusOr<bool> NextPiece() {
    if (left_ <= 0) return false;
    if (!pieces_) {
      if (file_ == files_.size()) return false;
      LOCKSTEP_ASSIGN_OR_RETURN(pieces_, FilePieces::Open(files_[file_]));
      line_ = 0;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(rest_, pieces_->Next());
    left_ -= static_cast<int64_t>(rest_.size());
    if (!rest_.empty()) return true;
    if (pieces_->begin() == 0)
      return absl::InvalidArgumentError(absl::StrCat(files_[file_], ": is empty, expected a text"));
    pieces_.reset();
    ++file_;
    return true;
  }

  const std::vector<std::string>& files_;
  size_t file_ = 0;
  int64_t left_, line_ = 0;
  std::optional<FilePieces> pieces_;
  absl::string_view rest_;
  bool characters_ = false;
  absl::Status status_;
};

absl::Status CheckOptions(const std::vector<std::string>& text_files, int64_t vocab_size,
                          const SentencePieceOptions& options) {
  const auto error = [](absl::string_view name, auto found, absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("SentencePieceTokenizer: ", name, " is ", found, ", expected ", expected));
  };
  if (text_files.empty()) return error("the number of text files", 0, "at least 1");
  if (vocab_size <= kOtherTokens || vocab_size > 1 << 24) return error("vocab_size", vocab_size, "260 to 2^24");
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1))
    return error("character_coverage", options.character_coverage, "0.98 to 1");
  if (options.most_text_bytes < 1) return error("most_text_bytes", options.most_text_bytes, "at least 1");
  return absl::OkStatus();
}

absl::StatusOr<std::string> Learn(const std::vector<std::string>& text_files, int64_t vocab_size,
                                  const SentencePieceOptions& options) {
  Lines lines(text_files, options.most_text_bytes);
  std::string model;
  // One thread: sums of several would depend on their number. Nothing of the text is changed before it is encoded.
  const std::string error = internal::TrainSentencePiece(
      {{"model_type", "bpe"},
       {"vocab_size", absl::StrCat(vocab_size)},
       {"character_coverage", absl::StrCat(options.character_coverage)},
       {"max_sentence_length", absl::StrCat(FilePieces::kMost)},
       {"num_threads", "1"},
       {"byte_fallback", "true"},
       {"normalization_rule_name", "identity"},
       {"add_dummy_prefix", "false"},
       {"remove_extra_whitespaces", "false"}},
      [&lines](std::string& line) { return lines.Next(line); }, model);
  LOCKSTEP_RETURN_IF_ERROR(lines.status());
  if (error.empty()) return model;
  if (!lines.characters())
    return absl::InvalidArgumentError("SentencePieceTokenizer: the text has no line with a character");
  return absl::InvalidArgumentError(
      absl::StrCat("SentencePieceTokenizer: vocab_size is ", vocab_size, ": ", Printable(error)));
}

absl::Status WriteModel(const std::string& path, const std::string& model) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, /*sync=*/true));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(model.data(), model.size()));
  return file->Commit();
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::unique_ptr<SentencePieceModel> model) : model_(std::move(model)) {}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::Load(const std::string& model_file) {
  const absl::StatusOr<std::string> bytes = ReadFile(model_file, kMostModelBytes);
  if (!bytes.ok()) return Annotate(bytes.status(), model_file);
  const auto none = [&](absl::string_view reason) {
    return absl::DataLossError(absl::StrCat(model_file, ": expected a sentencepiece model, found ", bytes->size(),
                                            " bytes that are none: ", Printable(reason)));
  };
  if (bytes->empty()) return none("the file is empty");
  if (const absl::Status sound = internal::CheckCharacterMaps(*bytes); !sound.ok()) return none(sound.message());
  auto model = std::make_unique<SentencePieceModel>();
  const std::string error = model->Parse(*bytes);
  if (!error.empty()) return none(error);
  if (model->end_of_text() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(model_file, ": the model has no piece `eos`, expected one for the end of a text"));
  }
  return std::unique_ptr<SentencePieceTokenizer>(new SentencePieceTokenizer(std::move(model)));
}

absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> SentencePieceTokenizer::Train(
    const std::vector<std::string>& text_files, const std::string& model_file, int64_t vocab_size,
    const SentencePieceOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(text_files, vocab_size, options));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string model, Learn(text_files, vocab_size, options));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(WriteModel(model_file, model), model_file));
  return Load(model_file);
}

int64_t SentencePieceTokenizer::vocab_size() const { return model_->size(); }

int64_t SentencePieceTokenizer::end_of_text() const { return model_->end_of_text(); }

absl::StatusOr<std::vector<int64_t>> SentencePieceTokenizer::Encode(absl::string_view text) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckUtf8(text));
  std::vector<int> tokens;
  const std::string error = model_->Encode({text.data(), text.size()}, tokens);
  if (!error.empty()) return absl::InvalidArgumentError(absl::StrCat("sentencepiece: ", Printable(error)));
  return std::vector<int64_t>(tokens.begin(), tokens.end());
}

absl::StatusOr<std::string> SentencePieceTokenizer::Decode(absl::Span<const int64_t> tokens) const {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckTokens(tokens, vocab_size()));
  std::string text;
  const std::string error = model_->Decode(std::vector<int>(tokens.begin(), tokens.end()), text);
  if (!error.empty()) return absl::InvalidArgumentError(absl::StrCat("sentencepiece: ", Printable(error)));
  return text;
}

}  // namespace lockstep::data
