#include "lockstep/data/tokens/token_file_writer.h"

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/regular_file.h"
#include "lockstep/data/tokens/token_file.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Path(const std::string& name) { return absl::StrCat(::testing::TempDir(), "/", name); }

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TokenFileWriter, ChoosesTheSmallestTokensWithRoomForTheVocabulary) {
  const std::string small = Path("small"), large = Path("large");
  ASSERT_EQ(WriteTokenFile(small, {1, 65535}, 65536), absl::OkStatus());
  ASSERT_EQ(WriteTokenFile(large, {1, 65536, 4294967295}, int64_t{1} << 32), absl::OkStatus());
  EXPECT_EQ(BytesOf(small), std::string("\1\0\xff\xff", 4));
  EXPECT_EQ(BytesOf(large), std::string("\1\0\0\0\0\0\1\0\xff\xff\xff\xff", 12));
  EXPECT_EQ(TokenFileWriter::Create(small, 65536).value()->format(), TokenFormat::kUint16);
  EXPECT_EQ(TokenFileWriter::Create(small, 65537).value()->format(), TokenFormat::kUint32);
}

TEST(TokenFileWriter, WritesWhatTokenFileReads) {
  for (const int64_t vocab_size : {50257, 128256}) {
    const auto writer = TokenFileWriter::Create(Path("written"), vocab_size).value();
    std::vector<int64_t> tokens(100'000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i) * 7919 % vocab_size;
    const absl::Span<const int64_t> all(tokens);
    for (const auto& [begin, count] :
         std::vector<std::pair<size_t, size_t>>{{0, 1}, {1, 0}, {1, 9999}, {10'000, 90'000}})
      ASSERT_EQ(writer->Write(all.subspan(begin, count)), absl::OkStatus());
    EXPECT_EQ(writer->size(), 100'000);
    ASSERT_EQ(writer->Commit(), absl::OkStatus());

    const TokenFile file = TokenFile::Open(Path("written"), writer->format()).value();
    ASSERT_EQ(file.size(), 100'000);
    std::vector<int64_t> inputs(99'999), targets(99'999);
    ASSERT_EQ(file.Read(OpenRegularFile(file.path()).value().get(), 0, absl::MakeSpan(inputs), absl::MakeSpan(targets)),
              absl::OkStatus());
    inputs.push_back(targets.back());
    EXPECT_EQ(inputs, tokens);
  }
}

TEST(TokenFileWriter, LeavesTheOldFileUntilCommit) {
  const std::string path = Path("old");
  ASSERT_EQ(WriteTokenFile(path, {1}, 10), absl::OkStatus());
  ASSERT_EQ(TokenFileWriter::Create(path, 10).value()->Write({2, 3}), absl::OkStatus());
  EXPECT_EQ(BytesOf(path), std::string("\1\0", 2));
}

TEST(TokenFileWriter, NamesATokenOutsideOfTheVocabulary) {
  const std::string path = Path("outside");
  const auto writer = TokenFileWriter::Create(path, 10).value();
  ASSERT_EQ(writer->Write({1, 2}), absl::OkStatus());
  const absl::Status status = writer->Write({3, 10});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("/outside: token 3 is 10, expected 0 to 9, as the vocabulary has 10 tokens"));
  EXPECT_THAT(WriteTokenFile(path, {-1}, 10).message(), HasSubstr("/outside: token 0 is -1, "));
  EXPECT_EQ(BytesOf(path), "");
}

TEST(TokenFileWriter, NamesAPathThatCannotBeWritten) {
  const absl::Status missing = WriteTokenFile("/no/such/folder/train.bin", {1}, 10);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("/no/such/folder/train.bin: open its directory"));
  EXPECT_THAT(WriteTokenFile(::testing::TempDir(), {1}, 10).message(), HasSubstr(::testing::TempDir()));
  for (const int64_t vocab_size : {int64_t{0}, (int64_t{1} << 32) + 1}) {
    const absl::Status status = WriteTokenFile(Path("none"), {}, vocab_size);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("/none: the size of the vocabulary is ", vocab_size)));
  }
}

}  // namespace
}  // namespace lockstep::data
