#include "lockstep/data/tokens/token_file_writer.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/data/tokens/internal/check_tokens.h"

namespace lockstep::data {
namespace {

template <typename Token>
absl::Status Append(absl::Span<const int64_t> tokens, checkpoint::file::AtomicFile& file) {
  constexpr size_t kPiece = 4096;
  Token narrow[kPiece];
  for (; !tokens.empty(); tokens.remove_prefix(std::min(kPiece, tokens.size()))) {
    const size_t count = std::min(kPiece, tokens.size());
    std::copy_n(tokens.begin(), count, narrow);
    LOCKSTEP_RETURN_IF_ERROR(file.Append(narrow, count * sizeof(Token)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(std::string path, int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > int64_t{1} << 32) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the size of the vocabulary is ", vocab_size, ", expected 1 to 2^32"));
  }
  auto file = checkpoint::file::AtomicFile::Create(path, /*sync=*/true);
  if (!file.ok()) return Annotate(file.status(), path);
  return std::unique_ptr<TokenFileWriter>(new TokenFileWriter(std::move(path), vocab_size, *std::move(file)));
}

absl::Status TokenFileWriter::Write(absl::Span<const int64_t> tokens) {
  LOCKSTEP_RETURN_IF_ERROR(Annotate(internal::CheckTokens(tokens, vocab_size_, size_), path_));
  const auto append = token_bytes_ == 2 ? Append<uint16_t> : Append<uint32_t>;
  LOCKSTEP_RETURN_IF_ERROR(Annotate(append(tokens, *file_), path_));
  size_ += static_cast<int64_t>(tokens.size());
  return absl::OkStatus();
}

absl::Status TokenFileWriter::Commit() { return Annotate(file_->Commit(), path_); }

absl::Status WriteTokenFile(std::string path, absl::Span<const int64_t> tokens, int64_t vocab_size) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, TokenFileWriter::Create(std::move(path), vocab_size));
  LOCKSTEP_RETURN_IF_ERROR(writer->Write(tokens));
  return writer->Commit();
}

}  // namespace lockstep::data
