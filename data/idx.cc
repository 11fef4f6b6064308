#include "lockstep/data/idx.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/data/internal/byte_source.h"

namespace lockstep::data {
namespace {

using internal::ByteSource;

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int kMaxDimensions = 8;
constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kFirstAllocation = 1 << 20;

std::string SizesText(const std::vector<int64_t>& sizes) { return absl::StrJoin(sizes, " x "); }

absl::Status ReadExactly(ByteSource& source, absl::string_view what, uint8_t* out, size_t size) {
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t found, source.Read(out, size));
  if (found == size) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("expected ", size, " bytes of ", what, ", found ", found));
}

absl::StatusOr<std::vector<int64_t>> ReadHeader(ByteSource& source) {
  uint8_t magic[4];
  LOCKSTEP_RETURN_IF_ERROR(ReadExactly(source, "IDX magic number", magic, sizeof(magic)));
  if (magic[0] != 0 || magic[1] != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expected an IDX file, which starts with bytes 00 00, found %02x %02x", magic[0], magic[1]));
  }
  if (magic[2] != kUnsignedByte) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expected IDX element type 0x08 (unsigned byte), found 0x%02x", magic[2]));
  }
  if (magic[3] < 1 || magic[3] > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected 1 to ", kMaxDimensions, " dimensions, found ", int{magic[3]}));
  }
  uint8_t bytes[4 * kMaxDimensions];
  LOCKSTEP_RETURN_IF_ERROR(ReadExactly(source, "IDX sizes", bytes, 4 * magic[3]));
  std::vector<int64_t> sizes(magic[3]);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const uint8_t* b = bytes + 4 * i;
    sizes[i] = int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]};
  }
  return sizes;
}

// The product of `sizes`. For the limit, a size of 0 counts as 1, as in a tensor's strides.
absl::StatusOr<int64_t> CountBytes(const std::vector<int64_t>& sizes) {
  int64_t strides = 1, bytes = 1;
  for (const int64_t size : sizes) {
    const int64_t factor = std::max<int64_t>(size, 1);
    if (strides > kMaxBytes / factor) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected at most ", kMaxBytes, " bytes, found sizes ", SizesText(sizes)));
    }
    strides *= factor;
    bytes *= size;
  }
  return bytes;
}

// Reads `count` bytes. Memory grows with the bytes that were read.
absl::StatusOr<at::Tensor> ReadPayload(ByteSource& source, int64_t count, const std::vector<int64_t>& sizes) {
  at::Tensor payload = at::empty({std::min(count, kFirstAllocation)}, at::kByte);
  int64_t done = 0;
  while (done < count) {
    if (done == payload.numel()) payload.resize_({std::min(count, 2 * done)});
    const int64_t wanted = payload.numel() - done;
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t found, source.Read(payload.mutable_data_ptr<uint8_t>() + done, wanted));
    done += found;
    if (found < wanted) {
      return absl::DataLossError(
          absl::StrCat("expected ", count, " bytes for sizes ", SizesText(sizes), ", found ", done));
    }
  }
  return payload.view(sizes);
}

absl::StatusOr<at::Tensor> Read(absl::string_view path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, ByteSource::Open(path));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadHeader(*source));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t count, CountBytes(sizes));
  LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor payload, ReadPayload(*source, count, sizes));
  uint8_t more;
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t trailing, source->Read(&more, 1));  // also checks gzip's checksum
  if (trailing == 0) return payload;
  return absl::DataLossError(absl::StrCat("expected ", count, " bytes for sizes ", SizesText(sizes), ", found more"));
}

}  // namespace

absl::StatusOr<at::Tensor> ReadIdx(absl::string_view path) {
  absl::StatusOr<at::Tensor> tensor;
  absl::Status status = TorchStatus("", [&] { tensor = Read(path); });
  if (status.ok()) status = tensor.status();
  if (!status.ok()) return Annotate(status, path);
  return tensor;
}

}  // namespace lockstep::data
