#include "lockstep/checkpoint/file/foreign_format.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint::file {
namespace {

struct Format {
  size_t offset;
  absl::string_view start;
  absl::StatusCode code;
  const char* what;
};

constexpr absl::StatusCode kDamage = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

constexpr Format kFormats[] = {
    // Protocol 2, then torch.save's magic number 0x1950a86a20f9469cfc6c.
    {0, absl::string_view("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14), kUnimplemented,
     "a .pt file in torch.save's legacy format (PyTorch before 1.6); use Load"},
    {257, "ustar", kUnimplemented,
     "a tar archive, as PyTorch before 0.1.10 wrote; load it in Python and save it again, or unpack it"},
    {0, "version https://git-lfs.github.com/spec", kDamage,
     "a Git LFS pointer, not the file that it stands for; run git lfs pull"},
    {0, absl::string_view("\x1f\x8b", 2), kDamage, "compressed with gzip; unpack it with gunzip"},
    {0, "BZh", kDamage, "compressed with bzip2; unpack it with bunzip2"},
    {0, absl::string_view("\xfd\x37zXZ\0", 6), kDamage, "compressed with xz; unpack it with unxz"},
    {0, absl::string_view("\x28\xb5\x2f\xfd", 4), kDamage, "compressed with zstd; unpack it with unzstd"},
    {0, "\x93NUMPY", kDamage, "a NumPy array; save torch.from_numpy(x) with torch.save in Python"},
    {0, "\x89HDF\r\n\x1a\n", kDamage, "an HDF5 file, as Keras writes; it is not a PyTorch checkpoint"},
    {0, "GGUF", kDamage, "a GGUF file; it is not a PyTorch checkpoint"},
};

bool IsWebPage(absl::string_view start) {
  start = absl::StripLeadingAsciiWhitespace(start);
  return absl::StartsWithIgnoreCase(start, "<!doctype html") || absl::StartsWithIgnoreCase(start, "<html");
}

// Protocols 2 to 5 of a pickle alone, as pickle.dump writes it.
bool IsPickle(absl::string_view start) {
  return start.size() > 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5 && start[2] != '\0';
}

}  // namespace

absl::Status CheckForeignFormat(const ByteSource& source) {
  if (source.size == 0) return absl::DataLossError("the file is empty");
  std::string start(std::min<uint64_t>(source.size, 512), '\0');
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, start.data(), start.size()));
  const absl::string_view text = start;
  for (const Format& format : kFormats) {
    const bool fits = text.size() >= format.offset && absl::StartsWith(text.substr(format.offset), format.start);
    if (fits) return absl::Status(format.code, format.what);
  }
  if (IsWebPage(text)) return absl::DataLossError("a web page (HTML), not a checkpoint; the download went wrong");
  if (IsPickle(text)) {
    return absl::UnimplementedError("a pickle without torch.save's archive; load it in Python and torch.save it");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> IsSafetensors(const ByteSource& source) {
  char start[9];
  if (source.size <= sizeof(start)) return false;
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, start, sizeof(start)));
  uint64_t header;
  std::memcpy(&header, start, sizeof(header));
  return start[8] == '{' && header < source.size;
}

}  // namespace lockstep::checkpoint::file
