#include "lockstep/checkpoint/zip/reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/in_threads.h"
#include "lockstep/checkpoint/zip/crc32.h"
#include "lockstep/checkpoint/zip/format.h"

namespace lockstep::checkpoint::zip {
namespace {

using file::ByteSource;

// Read and checked while still in the processor's cache.
constexpr size_t kBlock = 256 * 1024;

// Requires: at + sizeof(T) <= bytes.size().
template <typename T>
T Get(absl::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return static_cast<T>(value);
}

absl::StatusOr<std::string> ReadString(const ByteSource& source, uint64_t offset, size_t count) {
  std::string bytes(count, '\0');
  LOCKSTEP_RETURN_IF_ERROR(source.read(offset, &bytes[0], count));
  return bytes;
}

absl::Status Corrupt(absl::string_view what) { return absl::DataLossError(absl::StrCat("zip archive: ", what)); }

absl::Status RecordError(const ZipRecord& record, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("record \"", record.name, "\": ", what));
}

struct Directory {
  uint64_t count = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};

// The end record is the last thing in the file but for a comment whose length it names.
absl::StatusOr<uint64_t> FindEnd(const ByteSource& source) {
  const uint64_t tail = std::min<uint64_t>(source.size, kEndSize + 0xffff);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, ReadString(source, source.size - tail, tail));
  for (size_t at = tail < kEndSize ? 0 : tail - kEndSize + 1; at-- > 0;) {
    if (Get<uint32_t>(bytes, at) == kEnd && at + kEndSize + Get<uint16_t>(bytes, at + 20) == tail) {
      return source.size - tail + at;
    }
  }
  return Corrupt("no end record; the file is truncated or is not a zip archive");
}

absl::StatusOr<Directory> ReadZip64End(const ByteSource& source, uint64_t locator, absl::string_view located) {
  const uint64_t at = Get<uint64_t>(located, 8);
  if (locator < kZip64EndSize || at > locator - kZip64EndSize) return Corrupt("its zip64 end record lies outside it");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string end, ReadString(source, at, kZip64EndSize));
  if (Get<uint32_t>(end, 0) != kZip64End) return Corrupt("its zip64 end record is not where it should be");
  if (Get<uint64_t>(end, 24) != Get<uint64_t>(end, 32))
    return absl::UnimplementedError("a zip archive in several files");
  return Directory{Get<uint64_t>(end, 32), Get<uint64_t>(end, 40), Get<uint64_t>(end, 48)};
}

bool Agrees(uint64_t short_value, uint64_t in_zip64, uint64_t value) {
  return short_value == in_zip64 || short_value == value;
}

absl::StatusOr<Directory> FindDirectory(const ByteSource& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t at, FindEnd(source));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string end, ReadString(source, at, kEndSize));
  const Directory directory{Get<uint16_t>(end, 10), Get<uint32_t>(end, 12), Get<uint32_t>(end, 16)};
  if (Get<uint16_t>(end, 8) != directory.count) return absl::UnimplementedError("a zip archive in several files");
  if (at < kZip64LocatorSize) return directory;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string located, ReadString(source, at - kZip64LocatorSize, kZip64LocatorSize));
  if (Get<uint32_t>(located, 0) != kZip64Locator) return directory;
  LOCKSTEP_ASSIGN_OR_RETURN(const Directory wide, ReadZip64End(source, at - kZip64LocatorSize, located));
  if (!Agrees(directory.count, kCountInZip64, wide.count) || !Agrees(directory.size, kInZip64, wide.size) ||
      !Agrees(directory.offset, kInZip64, wide.offset)) {
    return Corrupt("its two end records disagree");
  }
  return wide;
}

// Replaces the values of size, packed and offset that are in the zip64 extra field.
absl::Status ReadZip64Extra(absl::string_view extra, uint64_t& size, uint64_t& packed, uint64_t& offset) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const uint16_t id = Get<uint16_t>(extra, at);
    const size_t end = at + 4 + Get<uint16_t>(extra, at + 2);
    if (end > extra.size()) return Corrupt("an extra field passes its header's end");
    at += 4;
    for (uint64_t* field : {&size, &packed, &offset}) {
      if (id != kZip64Extra || *field != kInZip64) continue;
      if (at + 8 > end) return Corrupt("a zip64 extra field is too short");
      *field = Get<uint64_t>(extra, at);
      at += 8;
    }
    at = end;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ZipReader> ZipReader::Open(ByteSource source) {
  ZipReader reader;
  reader.source_ = std::move(source);
  LOCKSTEP_RETURN_IF_ERROR(reader.ReadDirectory());
  return reader;
}

absl::Status ZipReader::ReadDirectory() {
  LOCKSTEP_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(source_));
  if (directory.offset > source_.size || directory.size > source_.size - directory.offset) {
    return Corrupt("its directory passes the file's end");
  }
  if (directory.count > directory.size / kCentralHeaderSize) return Corrupt("its directory is too short");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, ReadString(source_, directory.offset, directory.size));
  records_.reserve(directory.count);
  size_t at = 0;
  for (uint64_t i = 0; i < directory.count; ++i) LOCKSTEP_RETURN_IF_ERROR(AddRecord(bytes, at, directory.offset));
  if (at != bytes.size()) return Corrupt("its directory is longer than its entries");
  return CheckOrder(directory.offset);
}

absl::Status ZipReader::AddRecord(absl::string_view directory, size_t& at, uint64_t directory_offset) {
  if (directory.size() - at < kCentralHeaderSize) return Corrupt("its directory is too short");
  const absl::string_view entry = directory.substr(at);
  if (Get<uint32_t>(entry, 0) != kCentralHeader) return Corrupt("a directory entry has no signature");
  const size_t name_size = Get<uint16_t>(entry, 28), extra_size = Get<uint16_t>(entry, 30);
  const size_t total = kCentralHeaderSize + name_size + extra_size + Get<uint16_t>(entry, 32);
  if (total > entry.size()) return Corrupt("its directory is too short");
  at += total;

  ZipRecord record;
  record.name = std::string(entry.substr(kCentralHeaderSize, name_size));
  record.crc32 = Get<uint32_t>(entry, 16);
  uint64_t packed = Get<uint32_t>(entry, 20);
  record.size = Get<uint32_t>(entry, 24);
  record.header = Get<uint32_t>(entry, 42);
  LOCKSTEP_RETURN_IF_ERROR(
      ReadZip64Extra(entry.substr(kCentralHeaderSize + name_size, extra_size), record.size, packed, record.header));
  if (Get<uint16_t>(entry, 8) & kEncrypted)
    return absl::UnimplementedError(absl::StrCat("record \"", record.name, "\" is encrypted"));
  record.compressed = Get<uint16_t>(entry, 10) != 0;
  if (record.compressed) record.size = packed;
  if (packed != record.size) return RecordError(record, "its two sizes disagree");
  LOCKSTEP_RETURN_IF_ERROR(FindData(record, directory_offset));
  records_.push_back(std::move(record));
  return absl::OkStatus();
}

absl::Status ZipReader::FindData(ZipRecord& record, uint64_t limit) const {
  const uint64_t fixed = kLocalHeaderSize + record.name.size();
  if (record.header > limit || limit - record.header < fixed) return RecordError(record, "it lies outside the file");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string local, ReadString(source_, record.header, fixed));
  if (Get<uint32_t>(local, 0) != kLocalHeader || Get<uint16_t>(local, 26) != record.name.size() ||
      absl::string_view(local).substr(kLocalHeaderSize) != record.name ||
      (Get<uint16_t>(local, 8) != 0) != record.compressed) {
    return RecordError(record, "its header disagrees with the directory");
  }
  record.offset = record.header + fixed + Get<uint16_t>(local, 28);
  if (record.offset > limit || limit - record.offset < record.size)
    return RecordError(record, "it lies outside the file");
  return absl::OkStatus();
}

absl::Status ZipReader::CheckOrder(uint64_t limit) {
  std::sort(records_.begin(), records_.end(), [](const auto& a, const auto& b) { return a.header < b.header; });
  for (size_t i = 0; i < records_.size(); ++i) {
    const uint64_t end = i + 1 < records_.size() ? records_[i + 1].header : limit;
    if (records_[i].offset + records_[i].size > end) return RecordError(records_[i], "it overlaps the next");
    if (!by_name_.emplace(records_[i].name, i).second) return RecordError(records_[i], "two records have this name");
  }
  return absl::OkStatus();
}

ZipReader ZipReader::OfRecords(ByteSource source, std::vector<ZipRecord> records) {
  ZipReader zip;
  zip.source_ = std::move(source);
  zip.records_ = std::move(records);
  for (size_t i = 0; i < zip.records_.size(); ++i) zip.by_name_.emplace(zip.records_[i].name, i);
  return zip;
}

const ZipRecord* ZipReader::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &records_[found->second];
}

namespace {

absl::Status CheckStored(const ZipRecord& record) {
  if (!record.compressed) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("record \"", record.name, "\" is compressed"));
}

absl::Status CheckCrc(const ZipRecord& record, uint32_t found) {
  if (found == record.crc32) return absl::OkStatus();
  if (record.crc32 == 0) {
    return RecordError(
        record,
        "it carries no CRC-32, as torch.save writes with CRCs off; load with verify = false to read it unchecked");
  }
  return RecordError(
      record, absl::StrFormat("its CRC-32 should be %08x and is %08x; the file is damaged", record.crc32, found));
}

}  // namespace

// The CRC-32 of the part, if `verify`. Where `to` is null the bytes are not kept.
absl::StatusOr<uint32_t> ZipReader::ReadPart(const ZipRecord& record, uint64_t begin, uint64_t count, char* to,
                                             bool verify) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckStored(record));
  std::vector<char> unkept(to ? 0 : std::min<uint64_t>(count, kBlock));
  uint32_t crc = 0;
  for (uint64_t done = 0; done < count;) {
    const size_t size = std::min<uint64_t>(count - done, kBlock);
    char* const block = to ? to + done : unkept.data();
    LOCKSTEP_RETURN_IF_ERROR(Annotate(source_.read(record.offset + begin + done, block, size),
                                      absl::StrCat("record \"", record.name, "\"")));
    if (verify) crc = ExtendCrc32(crc, block, size);
    done += size;
  }
  return crc;
}

absl::Status ZipReader::Read(const ZipRecord& record, void* to, bool verify) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint32_t crc, ReadPart(record, 0, record.size, static_cast<char*>(to), verify));
  return verify ? CheckCrc(record, crc) : absl::OkStatus();
}

void ZipReader::ReadAll(std::vector<ZipRead>& reads, bool verify) const {
  std::vector<uint64_t> sizes;
  for (ZipRead& read : reads) {
    read.status.Update(CheckStored(*read.record));
    sizes.push_back(read.record->size);
  }
  const std::vector<file::Piece> pieces = file::CutInPieces(sizes);
  std::vector<absl::StatusOr<uint32_t>> found(pieces.size());
  file::ForEachInThreads(pieces, [&](size_t i) {
    const ZipRead& read = reads[pieces[i].whole];
    char* const to = read.to ? read.to + pieces[i].begin : nullptr;
    found[i] = ReadPart(*read.record, pieces[i].begin, pieces[i].count, to, verify);
  });
  std::vector<uint32_t> crcs(reads.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t whole = pieces[i].whole;
    reads[whole].status.Update(found[i].status());
    if (found[i].ok()) crcs[whole] = CombineCrc32(crcs[whole], *found[i], pieces[i].count);
  }
  if (!verify) return;
  for (size_t i = 0; i < reads.size(); ++i) reads[i].status.Update(CheckCrc(*reads[i].record, crcs[i]));
}

}  // namespace lockstep::checkpoint::zip
