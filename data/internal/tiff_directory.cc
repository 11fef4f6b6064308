#include "lockstep/data/internal/tiff_directory.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep::data::internal {
namespace {

constexpr absl::string_view kLittleEndian("II*\0", 4);
constexpr absl::string_view kBigEndian("MM\0*", 4);

constexpr size_t kEntrySize = 12;

// Bytes of a number of one of TIFF's types; 0: it is no whole number.
int64_t WidthOf(int64_t type) {
  constexpr int64_t kByte = 1;
  constexpr int64_t kShort = 3;
  constexpr int64_t kLong = 4;
  if (type == kByte) return 1;
  if (type == kShort) return 2;
  return type == kLong ? 4 : 0;
}

absl::Status Truncated(size_t at, size_t size) {
  return absl::DataLossError(absl::StrCat("expected a TIFF file's description of its image at byte ", at,
                                          ", found the end of the file at byte ", size, ": it is truncated"));
}

}  // namespace

bool TiffDirectory::Recognises(absl::string_view bytes) {
  return absl::StartsWith(bytes, kLittleEndian) || absl::StartsWith(bytes, kBigEndian);
}

absl::StatusOr<TiffDirectory> TiffDirectory::Read(absl::string_view bytes) {
  TiffDirectory directory;
  directory.bytes_ = bytes;
  directory.is_big_endian_ = absl::StartsWith(bytes, kBigEndian);
  if (bytes.size() < 8) return Truncated(8, bytes.size());
  const size_t start = directory.Number(4, 4);
  if (start + 2 > bytes.size()) return Truncated(start, bytes.size());
  const size_t entries = directory.Number(start, 2);
  if (start + 2 + entries * kEntrySize > bytes.size()) return Truncated(start, bytes.size());
  for (size_t i = 0; i < entries; ++i) directory.ReadEntry(start + 2 + i * kEntrySize);
  return directory;
}

// An entry of other types, or whose numbers are not in the file, is none.
void TiffDirectory::ReadEntry(size_t at) {
  Field field;
  field.width = WidthOf(Number(at + 2, 2));
  field.count = Number(at + 4, 4);
  if (field.width == 0 || field.count == 0) return;
  const int64_t size = field.width * field.count;
  field.at = size <= 4 ? at + 8 : Number(at + 8, 4);
  if (static_cast<int64_t>(field.at) + size > static_cast<int64_t>(bytes_.size())) return;
  fields_.emplace(static_cast<TiffTag>(Number(at, 2)), field);
}

int64_t TiffDirectory::Number(size_t at, int64_t width) const {
  int64_t value = 0;
  for (int64_t i = 0; i < width; ++i) {
    const int64_t byte = static_cast<uint8_t>(bytes_[at + i]);
    value |= byte << 8 * (is_big_endian_ ? width - 1 - i : i);
  }
  return value;
}

int64_t TiffDirectory::Value(TiffTag tag, int64_t otherwise) const {
  const auto found = fields_.find(tag);
  return found == fields_.end() ? otherwise : Number(found->second.at, found->second.width);
}

std::vector<int64_t> TiffDirectory::Values(TiffTag tag) const {
  const auto found = fields_.find(tag);
  if (found == fields_.end()) return {};
  const Field& field = found->second;
  std::vector<int64_t> values(field.count);
  for (int64_t i = 0; i < field.count; ++i) values[i] = Number(field.at + i * field.width, field.width);
  return values;
}

std::string TiffDirectory::WithoutOrientation() const {
  std::string file(bytes_);
  const auto found = fields_.find(TiffTag::kOrientation);
  if (found == fields_.end()) return file;
  const Field& field = found->second;
  std::fill_n(file.begin() + field.at, field.width, '\0');
  file[field.at + (is_big_endian_ ? field.width - 1 : 0)] = 1;
  return file;
}

}  // namespace lockstep::data::internal
