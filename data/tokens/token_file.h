// Files of tokens, the numbers that language models are trained on.

#ifndef LOCKSTEP_DATA_TOKENS_TOKEN_FILE_H_
#define LOCKSTEP_DATA_TOKENS_TOKEN_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep::data {

enum class TokenFormat {
  kDetect,  // llm.c's if the file begins with its magic number, and else kUint16
  kUint16,  // nothing but tokens of 16 bits, as nanoGPT writes them
  kUint32,  // nothing but tokens of 32 bits
  kLlmC,    // a header of 256 int32 as llm.c writes it, then tokens: of 16 bits with GPT-2's magic number and version,
            // of 32 bits with Llama 3's
};

// The layout of one file. Numbers are little-endian in the file. It holds no descriptor.
class TokenFile {
 public:
  // Looks at the file at `path`. Errors name it. NotFound: it does not exist. InvalidArgument: it is not a regular file,
  // it has not llm.c's header though `format` is kLlmC, or it has a version of that header that is not known. DataLoss:
  // it ends inside a token, or has more or fewer tokens than its header says.
  static absl::StatusOr<TokenFile> Open(std::string path, TokenFormat format = TokenFormat::kDetect);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // in tokens
  int token_bytes() const { return token_bytes_; }

  // Reads tokens [begin, begin + count) into `inputs`, and [begin + 1, begin + count + 1) into `targets`, from a
  // descriptor that is open on the file. Both have `count` places. The file's pages are read, not mapped: a file that
  // somebody cuts is an error, where a mapped one would be a SIGBUS.
  // OutOfRange: the file has not so many. DataLoss: its length has changed since Open(), or the system cannot read it.
  absl::Status Read(int descriptor, int64_t begin, absl::Span<int64_t> inputs, absl::Span<int64_t> targets) const;

 private:
  TokenFile(std::string path, int token_bytes, int64_t header_bytes, int64_t size)
      : path_(std::move(path)), token_bytes_(token_bytes), header_bytes_(header_bytes), size_(size) {}
  absl::Status CheckLength(int descriptor) const;

  std::string path_;
  int token_bytes_;
  int64_t header_bytes_;
  int64_t size_;
};

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_TOKENS_TOKEN_FILE_H_
