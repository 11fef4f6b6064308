#include "lockstep/data/tokens/internal/file_pieces.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

// The length of the piece at the beginning of `bytes`, behind which the file goes on.
size_t PieceOf(absl::string_view bytes) {
  const size_t newline = bytes.rfind('\n');
  if (newline != absl::string_view::npos) return newline + 1;
  // The beginning of the last character: bytes 10xxxxxx follow another one.
  size_t last = bytes.size() - 1;
  while (last > 0 && bytes.size() - last < 4 && (bytes[last] & 0xc0) == 0x80) --last;
  return last;
}

}  // namespace

absl::StatusOr<FilePieces> FilePieces::Open(const std::string& path) {
  absl::StatusOr<UniqueFd> file = OpenRegularFile(path);
  if (!file.ok()) return Annotate(file.status(), path);
  return FilePieces(path, *std::move(file));
}

absl::StatusOr<absl::string_view> FilePieces::Next() {
  buffer_.erase(0, used_);
  begin_ += static_cast<int64_t>(used_);
  LOCKSTEP_RETURN_IF_ERROR(Annotate(Fill(), path_));
  used_ = buffer_.size() < kMost ? buffer_.size() : PieceOf(buffer_);
  return absl::string_view(buffer_.data(), used_);
}

absl::Status FilePieces::Fill() {
  size_t done = buffer_.size();
  buffer_.resize(kMost);
  while (done < kMost) {
    const ssize_t got = read(file_.get(), buffer_.data() + done, kMost - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  buffer_.resize(done);
  return absl::OkStatus();
}

}  // namespace lockstep::data::internal
