// Writes files of tokens, which TokenFile and TokenDataset read.

#ifndef LOCKSTEP_DATA_TOKENS_TOKEN_FILE_WRITER_H_
#define LOCKSTEP_DATA_TOKENS_TOKEN_FILE_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/data/tokens/token_file.h"

namespace lockstep::data {

// Writes any number of tokens in constant memory.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, data::TokenFileWriter::Create("train.bin", tokenizer->vocab_size()));
//   LOCKSTEP_RETURN_IF_ERROR(writer->Write(tokens));  // as often as you like
//   LOCKSTEP_RETURN_IF_ERROR(writer->Commit());
//
// The file appears whole, in place of an older one, when Commit() succeeds. Without that it does not appear. All errors
// name it. For one thread.
class TokenFileWriter {
 public:
  // Chooses nanoGPT's form with the smallest tokens that have room for a vocabulary of `vocab_size`: TokenFormat::kUint16
  // up to 65536, and kUint32 above. InvalidArgument: vocab_size is not in 1 to 2^32. Other errors are the system's.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(std::string path, int64_t vocab_size);

  // Adds tokens at the end. InvalidArgument: one is not in the vocabulary; nothing of this call is written.
  absl::Status Write(absl::Span<const int64_t> tokens);

  // Writes all to the disk, and gives the file its name. Call it once, last.
  absl::Status Commit();

  // The format that a reader must be told; kDetect finds kUint16 only.
  TokenFormat format() const { return token_bytes_ == 2 ? TokenFormat::kUint16 : TokenFormat::kUint32; }
  int64_t size() const { return size_; }  // tokens so far

 private:
  TokenFileWriter(std::string path, int64_t vocab_size, std::unique_ptr<checkpoint::file::AtomicFile> file)
      : path_(std::move(path)),
        vocab_size_(vocab_size),
        token_bytes_(vocab_size <= 65536 ? 2 : 4),
        file_(std::move(file)) {}

  const std::string path_;
  const int64_t vocab_size_;
  const int token_bytes_;
  std::unique_ptr<checkpoint::file::AtomicFile> file_;
  int64_t size_ = 0;
};

// Writes a file of these tokens, as above.
absl::Status WriteTokenFile(std::string path, absl::Span<const int64_t> tokens, int64_t vocab_size);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_TOKEN_FILE_WRITER_H_
