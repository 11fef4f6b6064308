#include "lockstep/checkpoint/zip/writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/zip/crc32.h"
#include "lockstep/checkpoint/zip/format.h"

namespace lockstep::checkpoint::zip {
namespace {

template <typename T>
void Put(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

uint32_t Clamp(uint64_t value) { return static_cast<uint32_t>(std::min<uint64_t>(value, kInZip64)); }

// The extra field that moves the data, which begins after it, to a multiple of kAlignment.
std::string Padding(uint64_t position) {
  const uint64_t past = (position + 4) % kAlignment;
  const size_t count = past == 0 ? 0 : kAlignment - past;
  std::string extra;
  Put<uint16_t>(extra, kPaddingExtra);
  Put<uint16_t>(extra, count);
  extra.append(count, 'Z');
  return extra;
}

std::string Zip64Sizes(uint64_t size) {
  std::string extra;
  if (size < kInZip64) return extra;
  Put<uint16_t>(extra, kZip64Extra);
  Put<uint16_t>(extra, 16);
  Put<uint64_t>(extra, size);
  Put<uint64_t>(extra, size);
  return extra;
}

std::string LocalHeader(const std::string& name, uint64_t offset, uint64_t size) {
  std::string extra = Zip64Sizes(size);
  extra += Padding(offset + kLocalHeaderSize + name.size() + extra.size());
  const uint32_t size_field = size < kInZip64 ? 0 : kInZip64;
  std::string out;
  Put<uint32_t>(out, kLocalHeader);
  Put<uint16_t>(out, 0);  // version needed
  Put<uint16_t>(out, kPyTorchFlags);
  Put<uint16_t>(out, 0);  // stored
  Put<uint32_t>(out, 0);  // time and date
  Put<uint32_t>(out, 0);  // the CRC follows the data
  Put<uint32_t>(out, size_field);
  Put<uint32_t>(out, size_field);
  Put<uint16_t>(out, name.size());
  Put<uint16_t>(out, extra.size());
  return out + name + extra;
}

std::string Descriptor(uint32_t crc32, uint64_t size) {
  std::string out;
  Put<uint32_t>(out, kDataDescriptor);
  Put<uint32_t>(out, crc32);
  for (int i = 0; i < 2; ++i) {
    if (size < kInZip64) {
      Put<uint32_t>(out, size);
    } else {
      Put<uint64_t>(out, size);
    }
  }
  return out;
}

std::string CentralExtra(uint64_t offset, uint64_t size) {
  std::string values;
  if (size >= kInZip64) {
    Put<uint64_t>(values, size);
    Put<uint64_t>(values, size);
  }
  if (offset >= kInZip64) Put<uint64_t>(values, offset);
  std::string extra;
  if (values.empty()) return extra;
  Put<uint16_t>(extra, kZip64Extra);
  Put<uint16_t>(extra, values.size());
  return extra + values;
}

std::string CentralHeader(const std::string& name, uint64_t offset, uint64_t size, uint32_t crc32) {
  const std::string extra = CentralExtra(offset, size);
  std::string out;
  Put<uint32_t>(out, kCentralHeader);
  Put<uint32_t>(out, 0);  // versions
  Put<uint16_t>(out, kPyTorchFlags);
  Put<uint16_t>(out, 0);  // stored
  Put<uint32_t>(out, 0);  // time and date
  Put<uint32_t>(out, crc32);
  Put<uint32_t>(out, Clamp(size));
  Put<uint32_t>(out, Clamp(size));
  Put<uint16_t>(out, name.size());
  Put<uint16_t>(out, extra.size());
  Put<uint16_t>(out, 0);  // comment
  Put<uint16_t>(out, 0);  // disk
  Put<uint16_t>(out, 0);  // attributes
  Put<uint32_t>(out, 0);
  Put<uint32_t>(out, Clamp(offset));
  return out + name + extra;
}

// PyTorch always writes the zip64 end record too.
std::string EndRecords(uint64_t count, uint64_t offset, uint64_t size) {
  std::string out;
  Put<uint32_t>(out, kZip64End);
  Put<uint64_t>(out, kZip64EndSize - 12);
  Put<uint16_t>(out, 0x031e);  // made by: 3.0 on Unix
  Put<uint16_t>(out, 0x002d);  // needs 4.5
  Put<uint64_t>(out, 0);       // disks
  Put<uint64_t>(out, count);
  Put<uint64_t>(out, count);
  Put<uint64_t>(out, size);
  Put<uint64_t>(out, offset);
  Put<uint32_t>(out, kZip64Locator);
  Put<uint32_t>(out, 0);
  Put<uint64_t>(out, offset + size);
  Put<uint32_t>(out, 1);
  const uint16_t short_count = std::min<uint64_t>(count, kCountInZip64);
  Put<uint32_t>(out, kEnd);
  Put<uint32_t>(out, 0);
  Put<uint16_t>(out, short_count);
  Put<uint16_t>(out, short_count);
  Put<uint32_t>(out, Clamp(size));
  Put<uint32_t>(out, Clamp(offset));
  Put<uint16_t>(out, 0);
  return out;
}

}  // namespace

ZipWriter::ZipWriter(file::ByteSink sink, std::string archive) : sink_(std::move(sink)), archive_(std::move(archive)) {}

absl::Status ZipWriter::Write(const std::string& bytes) {
  position_ += bytes.size();
  return sink_(bytes.data(), bytes.size());
}

absl::Status ZipWriter::Add(absl::string_view name, absl::string_view contents) {
  LOCKSTEP_RETURN_IF_ERROR(Begin(name, contents.size()));
  LOCKSTEP_RETURN_IF_ERROR(Append(contents.data(), contents.size()));
  return End();
}

absl::Status ZipWriter::Begin(absl::string_view name, uint64_t size) {
  entries_.push_back({absl::StrCat(archive_, "/", name), position_, size, 0});
  appended_ = 0;
  return Write(LocalHeader(entries_.back().name, position_, size));
}

absl::Status ZipWriter::Append(const void* from, size_t count) {
  entries_.back().crc32 = ExtendCrc32(entries_.back().crc32, from, count);
  appended_ += count;
  position_ += count;
  return sink_(from, count);
}

absl::Status ZipWriter::End() {
  const Entry& entry = entries_.back();
  if (appended_ != entry.size) {
    return absl::InternalError(
        absl::StrCat("record \"", entry.name, "\": ", entry.size, " bytes were announced and ", appended_, " written"));
  }
  return Write(Descriptor(entry.crc32, entry.size));
}

absl::Status ZipWriter::Finish() {
  const uint64_t offset = position_;
  for (const Entry& entry : entries_) {
    LOCKSTEP_RETURN_IF_ERROR(Write(CentralHeader(entry.name, entry.offset, entry.size, entry.crc32)));
  }
  return Write(EndRecords(entries_.size(), offset, position_ - offset));
}

std::string ZipWriter::Fingerprint() const {
  // FNV-1a, so that the id is the same on every machine.
  uint64_t names = 0xcbf29ce484222325, crcs = names;
  for (const Entry& entry : entries_) {
    for (const unsigned char c : entry.name) names = (names ^ c) * 0x100000001b3;
    crcs = (crcs ^ entry.crc32) * 0x100000001b3;
  }
  return absl::StrFormat("%020u%020u", names, crcs);
}

}  // namespace lockstep::checkpoint::zip
