#include "lockstep/data/internal/byte_source.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"

namespace lockstep::data::internal {
namespace {

constexpr size_t kBufferSize = 64 * 1024;
constexpr uint8_t kGzipMagic[] = {0x1f, 0x8b};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(absl::string_view path) {
  std::unique_ptr<ByteSource> source = absl::WrapUnique(new ByteSource);
  LOCKSTEP_RETURN_IF_ERROR(source->Start(std::string(path)));
  return source;
}

ByteSource::~ByteSource() {
  if (gzip_) inflateEnd(&stream_);
  if (file_) std::fclose(file_);
}

absl::Status ByteSource::Start(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(UniqueFd file, OpenRegularFile(path));
  file_ = fdopen(file.get(), "rb");
  if (!file_) return absl::ResourceExhaustedError("out of memory for reading it");
  file.Release();  // to file_
  buffer_.resize(kBufferSize);
  LOCKSTEP_RETURN_IF_ERROR(Refill());
  if (stream_.avail_in < sizeof(kGzipMagic) || std::memcmp(buffer_.data(), kGzipMagic, sizeof(kGzipMagic)) != 0) {
    return absl::OkStatus();
  }
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  gzip_ = inflateInit2(&stream_, kGzipOnly) == Z_OK;
  return gzip_ ? absl::OkStatus() : absl::ResourceExhaustedError("zlib could not start");
}

// Reads the next part of the file once the last one is used up. Afterwards avail_in is 0 only at the end of the file.
absl::Status ByteSource::Refill() {
  if (stream_.avail_in > 0) return absl::OkStatus();
  errno = 0;
  stream_.next_in = buffer_.data();
  stream_.avail_in = static_cast<uInt>(std::fread(buffer_.data(), 1, buffer_.size(), file_));
  if (std::ferror(file_)) return absl::ErrnoToStatus(errno, "cannot be read");
  return absl::OkStatus();
}

absl::StatusOr<size_t> ByteSource::Read(uint8_t* out, size_t size) {
  return gzip_ ? ReadGzip(out, size) : ReadPlain(out, size);
}

absl::StatusOr<size_t> ByteSource::ReadPlain(uint8_t* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    LOCKSTEP_RETURN_IF_ERROR(Refill());
    const size_t part = std::min<size_t>(stream_.avail_in, size - done);
    if (part == 0) break;
    std::memcpy(out + done, stream_.next_in, part);
    stream_.next_in += part;
    stream_.avail_in -= static_cast<uInt>(part);
    done += part;
  }
  return done;
}

absl::StatusOr<size_t> ByteSource::ReadGzip(uint8_t* out, size_t size) {
  size_t done = 0;
  while (done < size && !ended_) {
    LOCKSTEP_RETURN_IF_ERROR(Refill());
    if (stream_.avail_in == 0)
      return absl::DataLossError("expected the end of its gzip data, found the end of the file: it is truncated");
    const uInt part = static_cast<uInt>(std::min<size_t>(size - done, std::numeric_limits<uInt>::max()));
    stream_.next_out = out + done;
    stream_.avail_out = part;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    done += part - stream_.avail_out;
    if (result == Z_STREAM_END) {
      LOCKSTEP_RETURN_IF_ERROR(EndOfMember());
    } else if (result == Z_MEM_ERROR) {
      return absl::ResourceExhaustedError("zlib ran out of memory");
    } else if (result != Z_OK) {
      return absl::DataLossError(
          absl::StrCat("its gzip data is damaged: ", stream_.msg ? stream_.msg : "inflate failed"));
    }
  }
  return done;
}

absl::Status ByteSource::EndOfMember() {
  LOCKSTEP_RETURN_IF_ERROR(Refill());
  ended_ = stream_.avail_in == 0;
  if (ended_) return absl::OkStatus();
  if (*stream_.next_in != kGzipMagic[0])
    return absl::DataLossError("expected the end of the file after its gzip data, found more bytes");
  inflateReset(&stream_);
  return absl::OkStatus();
}

}  // namespace lockstep::data::internal
