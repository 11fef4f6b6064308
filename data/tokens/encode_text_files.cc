#include "lockstep/data/tokens/encode_text_files.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/internal/file_pieces.h"
#include "lockstep/data/tokens/token_file_writer.h"

namespace lockstep::data {
namespace {

absl::Status EncodeText(const Tokenizer& tokenizer, const std::string& path, TokenFileWriter& writer) {
  LOCKSTEP_ASSIGN_OR_RETURN(internal::FilePieces pieces, internal::FilePieces::Open(path));
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view piece, pieces.Next());
    if (piece.empty()) break;
    const absl::StatusOr<std::vector<int64_t>> tokens = tokenizer.Encode(piece);
    if (!tokens.ok()) return Annotate(tokens.status(), absl::StrCat(path, ": from byte ", pieces.begin(), " on"));
    LOCKSTEP_RETURN_IF_ERROR(writer.Write(*tokens));
  }
  if (pieces.begin() == 0) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty, expected a text"));
  return writer.Write({tokenizer.end_of_text()});
}

}  // namespace

absl::StatusOr<int64_t> EncodeTextFiles(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                        const std::string& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, TokenFileWriter::Create(out, tokenizer.vocab_size()));
  for (const std::string& text : texts) LOCKSTEP_RETURN_IF_ERROR(EncodeText(tokenizer, text, *writer));
  LOCKSTEP_RETURN_IF_ERROR(writer->Commit());
  return writer->size();
}

}  // namespace lockstep::data
