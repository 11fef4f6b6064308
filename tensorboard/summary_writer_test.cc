#include "lockstep/tensorboard/summary_writer.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::tensorboard {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T Number(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

uint32_t Masked(const std::string& bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Returns the contents of the file's records, read by the published framing.
std::vector<std::string> Records(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const std::string length = file.substr(at, 8);
    const auto size = Number<uint64_t>(length, 0);
    records.push_back(file.substr(at + 12, size));
    EXPECT_EQ(Number<uint32_t>(file, at + 8), Masked(length));
    EXPECT_EQ(Number<uint32_t>(file, at + 12 + size), Masked(records.back()));
    at += 16 + size;
  }
  return records;
}

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
}

TEST(SummaryWriter, HoldsAVersionAndAnEventForEachScalar) {
  auto file = SummaryWriter::Create(testing::TempDir() + "/new/folder");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->path(), HasSubstr("/new/folder/events.out.tfevents."));
  ASSERT_TRUE(file->AddScalar("val/acc1", 0.5, 300).ok());
  const std::vector<std::string> records = Records(Contents(file->path()));
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  EXPECT_EQ(records[0][0], 0x09);
  EXPECT_GT(Number<double>(records[0], 1), 1.6e9);  // seconds since 1970
  // step 300; a summary of one value: tag and float.
  EXPECT_EQ(records[1].substr(9), std::string("\x10\xac\x02\x2a\x11\x0a\x0f\x0a\x08val/acc1\x15\0\0\0\x3f", 22));
}

TEST(SummaryWriter, AFolderThatCannotBeMadeIsNamed) {
  EXPECT_THAT(std::string(SummaryWriter::Create("/proc/none").status().message()),
              MatchesRegex("/proc/none/events.out.tfevents.* cannot be opened for writing: No such file or directory"));
}

}  // namespace
}  // namespace lockstep::tensorboard
