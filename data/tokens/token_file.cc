#include "lockstep/data/tokens/token_file.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::data {
namespace {

// https://github.com/karpathy/llm.c, dev/data/data_common.py: int32 magic number, version, number of tokens.
constexpr int64_t kLlmCHeaderBytes = 256 * 4;
struct LlmCKind {
  int32_t magic, version;
  int token_bytes;
};
constexpr LlmCKind kLlmCKinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

struct Layout {
  int token_bytes = 2;
  int64_t header_bytes = 0;
  std::optional<int64_t> tokens_in_header = std::nullopt;
};

// By lseek(), which takes half of fstat()'s time: it is done for each block. Nothing uses the descriptor's own place.
absl::StatusOr<int64_t> LengthOf(int descriptor) {
  const off_t length = lseek(descriptor, 0, SEEK_END);
  if (length < 0) return absl::ErrnoToStatus(errno, "cannot be read");
  return length;
}

// Reads up to `size` bytes: fewer if the file ends.
absl::StatusOr<size_t> ReadAt(int descriptor, int64_t place, void* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(descriptor, static_cast<char*>(out) + done, size - done, place + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot be read");
    if (got == 0) break;
    done += got;
  }
  return done;
}

absl::StatusOr<Layout> LayoutOf(int descriptor, TokenFormat format) {
  if (format == TokenFormat::kUint16) return Layout{2};
  if (format == TokenFormat::kUint32) return Layout{4};
  int32_t header[3] = {0, 0, 0};
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t found, ReadAt(descriptor, 0, header, sizeof(header)));
  for (const LlmCKind& kind : kLlmCKinds) {
    if (found < sizeof(header) || header[0] != kind.magic) continue;
    if (header[1] != kind.version) {
      return absl::InvalidArgumentError(absl::StrCat("expected version ", kind.version,
                                                     " of llm.c's header with magic number ", kind.magic, ", found ",
                                                     header[1]));
    }
    return Layout{kind.token_bytes, kLlmCHeaderBytes, header[2]};
  }
  if (format == TokenFormat::kDetect) return Layout{2};
  return absl::InvalidArgumentError(absl::StrCat("expected llm.c's header, with magic number ", kLlmCKinds[0].magic,
                                                 " or ", kLlmCKinds[1].magic, ", found ", header[0]));
}

absl::StatusOr<int64_t> CountTokens(const Layout& layout, int64_t length) {
  const int64_t bytes = length - layout.header_bytes;
  if (layout.tokens_in_header && bytes != *layout.tokens_in_header * layout.token_bytes) {
    return absl::DataLossError(absl::StrCat("expected ", *layout.tokens_in_header, " tokens of ", layout.token_bytes,
                                            " bytes behind the header, as it says, found ", bytes, " bytes"));
  }
  if (bytes % layout.token_bytes != 0) {
    return absl::DataLossError(
        absl::StrCat("ends inside a token: expected a multiple of ", layout.token_bytes, " bytes, found ", bytes));
  }
  return bytes / layout.token_bytes;
}

// Widens tokens four at a time, as long as there are four. Returns how many.
#if defined(__x86_64__)
template <typename Token>
__attribute__((target("avx2"))) size_t WidenFours(const char* bytes, size_t count, int64_t* out) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const auto* const from = reinterpret_cast<const __m128i*>(bytes + i * sizeof(Token));
    const __m256i wide = sizeof(Token) == 2 ? _mm256_cvtepu16_epi64(_mm_loadl_epi64(from))
                                            : _mm256_cvtepu32_epi64(_mm_loadu_si128(from));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), wide);
  }
  return i;
}
const bool kHasFours = __builtin_cpu_supports("avx2");
#else
template <typename Token>
size_t WidenFours(const char*, size_t, int64_t*) {
  return 0;
}
constexpr bool kHasFours = false;
#endif

template <typename Token>
void Widen(const char* bytes, size_t count, int64_t* out) {
  for (size_t i = kHasFours ? WidenFours<Token>(bytes, count, out) : 0; i < count; ++i) {
    Token token;
    memcpy(&token, bytes + i * sizeof(Token), sizeof(Token));
    out[i] = token;
  }
}

}  // namespace

absl::StatusOr<TokenFile> TokenFile::Open(std::string path, TokenFormat format) {
  const auto look = [&]() -> absl::StatusOr<std::pair<Layout, int64_t>> {
    LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd file, OpenRegularFile(path));
    LOCKSTEP_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(file.get(), format));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t length, LengthOf(file.get()));
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t size, CountTokens(layout, length));
    return std::pair(layout, size);
  };
  const auto found = look();
  if (!found.ok()) return Annotate(found.status(), path);
  return TokenFile(std::move(path), found->first.token_bytes, found->first.header_bytes, found->second);
}

absl::Status TokenFile::CheckLength(int descriptor) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t length, LengthOf(descriptor));
  const int64_t expected = header_bytes_ + size_ * token_bytes_;
  if (length == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("has ", length < expected ? "shrunk" : "grown",
                                          " since it was opened: expected ", expected, " bytes, found ", length));
}

absl::Status TokenFile::Read(int descriptor, int64_t begin, absl::Span<int64_t> inputs,
                             absl::Span<int64_t> targets) const {
  const int64_t count = static_cast<int64_t>(inputs.size());
  if (begin < 0 || count < 1 || begin > size_ - count - 1) {
    return absl::OutOfRangeError(
        absl::StrCat(path_, ": tokens ", begin, " to ", begin + count, ", expected below ", size_));
  }
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckLength(descriptor), path_));
  // In pieces that stay in the first-level cache. Each brings one token more, the last target.
  constexpr int64_t kPiece = 4096;
  char bytes[(kPiece + 1) * 4];
  for (int64_t done = 0; done < count;) {
    const int64_t piece = std::min(kPiece, count - done);
    const size_t size = (piece + 1) * token_bytes_;
    const absl::StatusOr<size_t> got = ReadAt(descriptor, header_bytes_ + (begin + done) * token_bytes_, bytes, size);
    if (!got.ok()) return Annotate(got.status(), path_);
    if (*got < size) return absl::DataLossError(absl::StrCat(path_, ": has shrunk while it was read"));
    const auto widen = token_bytes_ == 2 ? Widen<uint16_t> : Widen<uint32_t>;
    widen(bytes, piece, inputs.data() + done);
    widen(bytes + token_bytes_, piece, targets.data() + done);
    done += piece;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::data
