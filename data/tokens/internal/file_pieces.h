// Reads a file of any size in pieces of some lines.

#ifndef LOCKSTEP_DATA_TOKENS_INTERNAL_FILE_PIECES_H_
#define LOCKSTEP_DATA_TOKENS_INTERNAL_FILE_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/posix/unique_fd.h"

namespace lockstep::data::internal {

// All errors name the file.
class FilePieces {
 public:
  static constexpr size_t kMost = 64 * 1024;

  static absl::StatusOr<FilePieces> Open(const std::string& path);

  // The next bytes, at most kMost, until the next call. They end behind a newline, or with the file; in a longer line,
  // they end before a character of UTF-8. "": the file has ended.
  absl::StatusOr<absl::string_view> Next();

  // The place in the file of the piece that Next() returned.
  int64_t begin() const { return begin_; }

 private:
  FilePieces(const std::string& path, UniqueFd file) : path_(path), file_(std::move(file)) {}
  absl::Status Fill();

  std::string path_;
  UniqueFd file_;
  std::string buffer_;
  size_t used_ = 0;  // of buffer_, the piece that Next() returned
  int64_t begin_ = 0;
};

}  // namespace lockstep::data::internal

#endif  // LOCKSTEP_DATA_TOKENS_INTERNAL_FILE_PIECES_H_
