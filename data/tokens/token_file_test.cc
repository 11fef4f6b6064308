#include "lockstep/data/tokens/token_file.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/posix/regular_file.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string Write(const std::string& name, const std::vector<T>& numbers, size_t cut = 0) {
  std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T) - cut);
  return path;
}

// A file as llm.c writes it.
template <typename T>
std::string WriteLlmC(const std::string& name, int32_t magic, int32_t version, int32_t count, std::vector<T> tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  const T* numbers = reinterpret_cast<const T*>(header.data());
  tokens.insert(tokens.begin(), numbers, numbers + 1024 / sizeof(T));
  return Write(name, tokens);
}

struct Block {
  std::vector<int64_t> inputs, targets;
};

absl::StatusOr<Block> Read(const TokenFile& file, int64_t begin, size_t count) {
  Block block{std::vector<int64_t>(count), std::vector<int64_t>(count)};
  const absl::StatusOr<UniqueFd> descriptor = OpenRegularFile(file.path());
  if (!descriptor.ok()) return descriptor.status();
  const absl::Status status =
      file.Read(descriptor->get(), begin, absl::MakeSpan(block.inputs), absl::MakeSpan(block.targets));
  if (!status.ok()) return status;
  return block;
}

TEST(TokenFile, ReadsEveryFormat) {
  const std::string short16 = Write<uint16_t>("raw16", {1, 65535, 3, 4});
  const std::string raw32 = Write<uint32_t>("raw32", {1, 4294967295, 3});
  const std::string gpt2 = WriteLlmC<uint16_t>("gpt2", 20240520, 1, 3, {7, 50256, 9});
  const std::string llama = WriteLlmC<uint32_t>("llama", 20240801, 7, 3, {7, 128255, 9});
  const auto read = [](const std::string& path, TokenFormat format) {
    const TokenFile file = TokenFile::Open(path, format).value();
    return Read(file, 0, file.size() - 1).value();
  };
  EXPECT_THAT(read(short16, TokenFormat::kDetect).targets, ElementsAre(65535, 3, 4));
  EXPECT_THAT(read(short16, TokenFormat::kUint16).inputs, ElementsAre(1, 65535, 3));
  EXPECT_THAT(read(raw32, TokenFormat::kUint32).targets, ElementsAre(4294967295, 3));
  for (const TokenFormat format : {TokenFormat::kDetect, TokenFormat::kLlmC}) {
    EXPECT_THAT(read(gpt2, format).inputs, ElementsAre(7, 50256));
    EXPECT_THAT(read(llama, format).targets, ElementsAre(128255, 9));
  }
}

TEST(TokenFile, ReadsFromAnyPlaceAndAnyNumber) {
  std::vector<uint16_t> tokens(20000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 7);
  const TokenFile file = TokenFile::Open(Write("long", tokens)).value();
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, size_t>>{
           {0, 1}, {0, 19999}, {19998, 1}, {1, 4096}, {5, 4097}, {3, 12288}, {7, 8191}}) {
    const Block block = Read(file, begin, count).value();
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(block.inputs[i], tokens[begin + i]) << begin << " " << count << " " << i;
      ASSERT_EQ(block.targets[i], tokens[begin + i + 1]);
    }
  }
  for (const auto& [begin, count] :
       std::vector<std::pair<int64_t, size_t>>{{0, 20000}, {19999, 1}, {-1, 5}, {0, 0}, {int64_t{1} << 62, 9}}) {
    EXPECT_EQ(Read(file, begin, count).status().code(), absl::StatusCode::kOutOfRange) << begin << " " << count;
  }
}

TEST(TokenFile, NamesWhatIsWrongWithAFile) {
  const auto error = [](const std::string& path, TokenFormat format = TokenFormat::kDetect) {
    return TokenFile::Open(path, format).status();
  };
  EXPECT_EQ(error("/no/such/file").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error("/no/such/file").message(), HasSubstr("/no/such/file"));
  EXPECT_THAT(error(::testing::TempDir()).message(), HasSubstr("expected a regular file, found a folder"));
  const std::string cut = Write<uint16_t>("cut", {1, 2, 3}, /*cut=*/1);
  EXPECT_EQ(error(cut).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(error(cut).message(), HasSubstr("/cut: ends inside a token: expected a multiple of 2 bytes, found 5"));
  EXPECT_THAT(error(Write<uint16_t>("plain", {1, 2, 3}), TokenFormat::kLlmC).message(),
              HasSubstr("expected llm.c's header, with magic number 20240520 or 20240801, found "));
  EXPECT_THAT(error(WriteLlmC<uint16_t>("version", 20240520, 3, 1, {7})).message(),
              HasSubstr("expected version 1 of llm.c's header with magic number 20240520, found 3"));
  for (const int32_t count : {2, 4, -1, 2147483647}) {
    const absl::Status status = error(WriteLlmC<uint16_t>("count", 20240520, 1, count, {7, 8, 9}));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << count;
    EXPECT_THAT(status.message(), HasSubstr("found 6 bytes"));
  }
  EXPECT_EQ(TokenFile::Open(Write<uint16_t>("empty", {})).value().size(), 0);
}

TEST(TokenFile, NoticesAFileThatChangesItsLength) {
  const std::string path = Write<uint16_t>("changes", {1, 2, 3, 4, 5});
  const TokenFile file = TokenFile::Open(path).value();
  ASSERT_EQ(truncate(path.c_str(), 6), 0);
  absl::Status status = Read(file, 0, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("/changes: has shrunk since it was opened: expected 10 bytes, found 6"));
  ASSERT_EQ(truncate(path.c_str(), 12), 0);
  status = Read(file, 0, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("has grown since it was opened: expected 10 bytes, found 12"));
}

}  // namespace
}  // namespace lockstep::data
