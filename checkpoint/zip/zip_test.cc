#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/zip/reader.h"
#include "lockstep/checkpoint/zip/writer.h"

namespace lockstep::checkpoint::zip {
namespace {

using ::testing::HasSubstr;

file::ByteSource FromString(const std::string& bytes) {
  return {bytes.size(), [&bytes](uint64_t offset, void* to, size_t count) {
            if (offset + count > bytes.size()) return absl::OutOfRangeError("read past the end");
            std::memcpy(to, bytes.data() + offset, count);
            return absl::OkStatus();
          }};
}

file::ByteSink ToString(std::string& bytes) {
  return [&bytes](const void* from, size_t count) {
    bytes.append(static_cast<const char*>(from), count);
    return absl::OkStatus();
  };
}

std::string TwoRecords() {
  std::string bytes;
  ZipWriter zip(ToString(bytes), "model");
  EXPECT_TRUE(zip.Add("data.pkl", "twelve bytes").ok());
  EXPECT_TRUE(zip.Add("data/0", std::string(100, 'x')).ok());
  EXPECT_TRUE(zip.Finish().ok());
  return bytes;
}

absl::Status ReadAll(const std::string& bytes) {
  const auto zip = ZipReader::Open(FromString(bytes));
  if (!zip.ok()) return zip.status();
  std::vector<ZipRead> reads;
  for (const ZipRecord& record : zip->records()) reads.push_back({&record});
  zip->ReadAll(reads, true);
  for (const ZipRead& read : reads) {
    if (!read.status.ok()) return read.status;
  }
  return absl::OkStatus();
}

TEST(Zip, ReadsWhatItWroteAlignedTo64Bytes) {
  const std::string bytes = TwoRecords();
  const auto zip = ZipReader::Open(FromString(bytes));
  ASSERT_TRUE(zip.ok()) << zip.status();
  ASSERT_EQ(zip->records().size(), 2);
  for (const ZipRecord& record : zip->records()) EXPECT_EQ(record.offset % 64, 0) << record.name;
  const ZipRecord* record = zip->Find("model/data.pkl");
  ASSERT_NE(record, nullptr);
  std::string contents(record->size, '\0');
  ASSERT_TRUE(zip->Read(*record, &contents[0], true).ok());
  EXPECT_EQ(contents, "twelve bytes");
  EXPECT_EQ(zip->Find("model/data"), nullptr);
}

TEST(Zip, NamesTheRecordWhoseCrcIsWrong) {
  std::string bytes = TwoRecords();
  bytes[bytes.find("xxxx")] ^= 1;
  const absl::Status status = ReadAll(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("record \"model/data/0\": its CRC-32 should be"));
}

TEST(Zip, SaysThatARecordCarriesNoCrc) {
  std::string bytes = TwoRecords();
  const size_t entry = bytes.find("PK\1\2");
  std::memset(&bytes[entry + 16], 0, 4);
  EXPECT_THAT(std::string(ReadAll(bytes).message()), HasSubstr("carries no CRC-32"));
}

TEST(Zip, RefusesRecordsThatOverlapOrLieOutside) {
  std::string bytes = TwoRecords();
  const size_t second = bytes.find("PK\1\2", bytes.find("PK\1\2") + 1);
  std::string overlap = bytes;
  overlap[overlap.find("PK\1\2") + 20] = 120;  // the first record's two sizes: 120 reaches into the second
  overlap[overlap.find("PK\1\2") + 24] = 120;
  EXPECT_THAT(std::string(ReadAll(overlap).message()), HasSubstr("overlaps the next"));
  std::string outside = bytes;
  outside[second + 44] = 1;
  EXPECT_THAT(std::string(ReadAll(outside).message()), HasSubstr("\"model/data/0\": it lies outside the file"));
}

TEST(Zip, RefusesACompressedRecordByName) {
  std::string bytes = TwoRecords();
  bytes[bytes.find("PK\3\4") + 8] = 8;
  bytes[bytes.find("PK\1\2") + 10] = 8;
  EXPECT_EQ(ReadAll(bytes), absl::UnimplementedError("record \"model/data.pkl\" is compressed"));
}

TEST(Zip, RefusesEveryTruncation) {
  const std::string bytes = TwoRecords();
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(ReadAll(bytes.substr(0, size)).ok()) << size;
}

// Large enough for several pieces, which several threads read.
TEST(Zip, ReadsManyRecordsAtOnceAndSaysWhichIsDamaged) {
  std::vector<std::string> contents = {std::string(13 << 20, 'a'), "", std::string((8 << 20) + 1, 'b'), "c"};
  for (size_t i = 0; i < contents[0].size(); ++i) contents[0][i] = static_cast<char>(i % 251);
  std::string bytes;
  ZipWriter writer(ToString(bytes), "model");
  for (size_t i = 0; i < contents.size(); ++i) ASSERT_TRUE(writer.Add(std::to_string(i), contents[i]).ok());
  ASSERT_TRUE(writer.Finish().ok());

  auto zip = ZipReader::Open(FromString(bytes));
  ASSERT_TRUE(zip.ok()) << zip.status();
  std::vector<std::string> read_contents;
  for (const ZipRecord& record : zip->records()) read_contents.emplace_back(record.size, '?');
  std::vector<ZipRead> reads;
  for (size_t i = 0; i < contents.size(); ++i) reads.push_back({&zip->records()[i], &read_contents[i][0]});
  zip->ReadAll(reads, true);
  for (const ZipRead& read : reads) EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_TRUE(read_contents == contents);

  bytes[zip->records()[0].offset + (9 << 20)] ^= 4;
  zip = ZipReader::Open(FromString(bytes));
  reads.clear();
  for (const ZipRecord& record : zip->records()) reads.push_back({&record});
  zip->ReadAll(reads, true);
  EXPECT_EQ(reads[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(reads[0].status.message()), HasSubstr("record \"model/0\": its CRC-32 should be "));
  for (size_t i = 1; i < reads.size(); ++i) EXPECT_TRUE(reads[i].status.ok()) << reads[i].status;
}

TEST(Zip, TakesAsManyRecordsAsThereAre) {
  constexpr int kMany = 400001;
  std::string bytes;
  ZipWriter writer(ToString(bytes), "many");
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(writer.Add(std::to_string(i), "").ok());
  ASSERT_TRUE(writer.Finish().ok());
  const auto zip = ZipReader::Open(FromString(bytes));
  ASSERT_TRUE(zip.ok()) << zip.status();
  EXPECT_EQ(zip->records().size(), kMany);
}

TEST(Zip, WritesAndReadsPastFourGibibytes) {
  // Only what is not a block of zeros is kept.
  constexpr uint64_t kBig = (uint64_t{1} << 32) + 64;
  const std::string zeros(16 << 20, '\0');
  std::map<uint64_t, std::string> pieces;
  uint64_t position = 0;
  const auto sink = [&](const void* from, size_t count) {
    if (count < zeros.size()) pieces[position] = std::string(static_cast<const char*>(from), count);
    position += count;
    return absl::OkStatus();
  };
  ZipWriter writer(sink, "big");
  ASSERT_TRUE(writer.Begin("data/0", kBig).ok());
  for (uint64_t done = 0; done < kBig;) {
    const size_t count = std::min<uint64_t>(zeros.size(), kBig - done);
    ASSERT_TRUE(writer.Append(zeros.data(), count).ok());
    done += count;
  }
  ASSERT_TRUE(writer.End().ok());
  ASSERT_TRUE(writer.Add("data/1", "after").ok());
  ASSERT_TRUE(writer.Finish().ok());

  const auto source = [&](uint64_t offset, void* to, size_t count) {
    std::memset(to, 0, count);
    auto piece = pieces.upper_bound(offset);
    if (piece != pieces.begin()) --piece;
    for (; piece != pieces.end() && piece->first < offset + count; ++piece) {
      for (size_t i = 0; i < piece->second.size(); ++i) {
        const uint64_t at = piece->first + i;
        if (at >= offset && at < offset + count) static_cast<char*>(to)[at - offset] = piece->second[i];
      }
    }
    return absl::OkStatus();
  };
  const auto zip = ZipReader::Open({position, source});
  ASSERT_TRUE(zip.ok()) << zip.status();
  EXPECT_EQ(zip->Find("big/data/0")->size, kBig);
  const ZipRecord* after = zip->Find("big/data/1");
  EXPECT_GT(after->header, kBig);
  EXPECT_EQ(after->offset % 64, 0);
  std::string contents(after->size, '\0');
  ASSERT_TRUE(zip->Read(*after, &contents[0], true).ok());
  EXPECT_EQ(contents, "after");
}

}  // namespace
}  // namespace lockstep::checkpoint::zip
